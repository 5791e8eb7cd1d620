"""The figures of the noise floor's table."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from benchmarks.placebo import figures_of, print_tables, summary_of
from nas.search.diagnostics import directedness
from nas.search.plan import SearchPlan
from pipeline.experiment import dump_experiment, load_experiment
from tests.nas.derivation.test_derivation import write


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


@pytest.mark.parametrize("warmup_fraction", [0.0, 0.5])
def test_t_is_the_guards_where_alpha_moves_from_the_first_step_on(
    undisturbed: Path, tmp_path: Path, warmup_fraction: float
) -> None:
    folder = tmp_path / "seed-0"
    shutil.copytree(undisturbed / "search/seed-0", folder)
    settings = [f"search.alpha.warmup_fraction={warmup_fraction}", "search.steps=480"]
    experiment = load_experiment(folder / "experiment.yaml", settings)
    (folder / "experiment.yaml").write_text(dump_experiment(experiment))
    walk_NLC = np.random.default_rng(0).normal(0.002, 0.05, size=(480, 4, 3)).cumsum(0)
    alpha_NLC = walk_NLC.astype(np.float32)
    write(folder / "pi.npz", alpha_NLC, ["attention", "dense", "identity"])
    first = int(warmup_fraction * 480)
    path_NLC = np.concatenate([np.zeros((1, 4, 3)), alpha_NLC[first:].astype(float)])
    plan = SearchPlan(experiment.search, 480, 0, 1)
    t_L = directedness(path_NLC, [plan.alpha_lr(step) for step in range(first, 480)])
    assert figures_of(folder)["t"] == pytest.approx(t_L.tolist())
