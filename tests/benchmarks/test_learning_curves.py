"""The rows of a training are what it logged, each training once, and all of them are drawn."""

import json
import shutil
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.layout_rows import rows_of
from benchmarks.learning_curves import collect, draw, learning_curves, main, training_of
from tests.runs import Capture


@pytest.fixture
def collected(undisturbed: Path, tmp_path: Path) -> Path:
    path = tmp_path / "curves.csv"
    collect(Namespace(run=undisturbed, csv=path))
    return path


def test_rows_are_what_was_logged(undisturbed: Path, collected: Path) -> None:
    (metrics,) = undisturbed.glob("retrain/*/seed-*/metrics.jsonl")
    logged = [json.loads(line) for line in metrics.read_text().splitlines()]
    wanted = [(row["step"], row["loss_nats"]) for row in logged if row["kind"] == "train"]
    rows = rows_of(collected)
    nats = [float(row["train_nats"]) for row in rows]
    assert [int(row["step"]) for row in rows] == [step for step, _ in wanted]
    assert nats == pytest.approx([nats for _, nats in wanted], abs=5e-5)
    assert len({training_of(row) for row in rows}) == 1
    assert len(wanted) > 3


def test_a_training_is_collected_once(undisturbed: Path, collected: Path) -> None:
    before = collected.read_bytes()
    collect(Namespace(run=undisturbed, csv=collected))
    assert collected.read_bytes() == before


def test_a_training_of_another_size_is_refused(
    undisturbed: Path, collected: Path, tmp_path: Path
) -> None:
    before, other = collected.read_bytes(), tmp_path / "other"
    shutil.copytree(undisturbed, other)
    (experiment,) = other.glob("retrain/*/seed-*/experiment.yaml")
    experiment.write_text(experiment.read_text().replace("d_model: 16", "d_model: 8"))
    with pytest.raises(ValueError, match=r"model\.d_model is 16, now 8; .* give .* another --csv"):
        collect(Namespace(run=other, csv=collected))
    assert collected.read_bytes() == before


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ["collect", "--csv", "other.csv", "--run", "."],
            "other.csv: has columns layout, nats; gi",
        ),
        (["collect", "--csv", "new.csv", "--run", "."], ".: no training below it has ended; give"),
        (
            ["draw", "--csv", "new.csv", "--less", "ad", "--figure", "x.png"],
            "ad: no training of an",
        ),
    ],
)
def test_what_cannot_be_is_one_line(
    words: list[str], line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("other.csv").write_text("layout,nats\nad,4.0\n")
    with pytest.raises(SystemExit) as ending:
        main(words)
    assert ending.value.code == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(line)
    assert [path.name for path in tmp_path.iterdir()] == ["other.csv"]


def test_every_training_is_a_line_less_the_mean_of_as_many_steps(
    collected: Path, tmp_path: Path
) -> None:
    rows = rows_of(collected)
    base, nats_S = rows[0]["layout"], np.array([float(row["train_nats"]) for row in rows])
    again = [row | {"seed": "8", "train_nats": f"{2 + i}"} for i, row in enumerate(rows)]
    longer = [row | {"steps": "6000"} for row in rows]
    other = [row | {"layout": "aadd", "train_nats": "5"} for row in longer]
    (axes,) = learning_curves([*rows, *again, *longer, *other], base).axes
    first, second, long, last = axes.get_lines()
    half_S = (nats_S - 2 - np.arange(len(rows))) / 2
    for line, wanted_S in (
        (first, half_S),
        (second, -half_S),
        (long, 0 * nats_S),
        (last, 5 - nats_S),
    ):
        assert np.asarray(line.get_ydata()) == pytest.approx(wanted_S, abs=1e-9)
    assert first.get_color() == second.get_color() == long.get_color() != last.get_color()
    assert first.get_linestyle() == second.get_linestyle() != long.get_linestyle()
    with pytest.raises(ValueError, match=rf"^aadd: no training of {rows[0]['steps']} steps"):
        learning_curves([*rows, *other], "aadd")
    figure = tmp_path / "curves.png"
    draw(Namespace(csv=collected, figure=figure, less=base))
    assert figure.read_bytes().startswith(b"\x89PNG")
