"""The figures of the noise floor's table."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from benchmarks.placebo import figures_of, print_tables, summary_of


@pytest.fixture
def rows(undisturbed: Path, tmp_path: Path) -> list[dict[str, object]]:
    shutil.copytree(undisturbed / "search/seed-0", tmp_path / "seed-0")
    place = {"variant": "30", "side": "real"}
    one = {**place, "seed": 0, **figures_of(tmp_path / "seed-0")}
    other = {**place, "seed": 1, **figures_of(tmp_path / "seed-0")}
    other["choice"] = [one["choice"][0], *["none"] * 3]
    return [one, other]


def test_a_row_and_its_summary_have_the_figures_of_the_run(
    rows: list[dict[str, object]], undisturbed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with np.load(undisturbed / "search/seed-0/pi.npz") as arrays:
        pi_LC, labels = arrays["pi"][-1], arrays["labels"]
    ordered = np.sort(pi_LC, axis=1)
    assert rows[0]["margins"] == pytest.approx(ordered[:, -1] - ordered[:, -2])
    assert rows[0]["choice"] == labels[pi_LC.argmax(1)].tolist()
    assert (rows[0]["steps"], rows[0]["alpha_steps"], rows[0]["peak_lr"]) == (30, 15, 0.05)
    assert rows[0]["t"] == [None] * 4
    summary = summary_of(rows)
    assert summary["pairs_alike"] == 0.25
    assert summary["largest_margin"] == pytest.approx((ordered[:, -1] - ordered[:, -2]).max())
    print_tables(rows, [summary])
    assert "| 30 | 15 | 0.05 | real |" in capsys.readouterr().out
