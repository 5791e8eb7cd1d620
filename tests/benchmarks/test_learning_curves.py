"""The rows of a training are what it logged, each training once, and all of them are drawn."""

import json
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.layout_rows import rows_of
from benchmarks.learning_curves import collect, draw, learning_curves, training_of


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


def test_every_training_is_a_line_and_those_not_asked_for_are_none(
    collected: Path, tmp_path: Path
) -> None:
    rows = rows_of(collected)
    other = [row | {"layout": "aadd", "seed": "8", "steps": "6"} for row in rows[:2]]
    (axes,) = learning_curves([*rows, *other]).axes
    lines = axes.get_lines()
    assert len(lines) == 2
    assert lines[0].get_color() != lines[1].get_color()
    assert lines[0].get_linestyle() != lines[1].get_linestyle()
    assert np.asarray(lines[0].get_ydata()).tolist() == [float(row["train_nats"]) for row in rows]
    figure = tmp_path / "curves.png"
    draw(Namespace(csv=collected, figure=figure, only=None))
    assert figure.read_bytes().startswith(b"\x89PNG")
