"""The rows of a training are what it logged, each training once, and all of them are drawn."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from benchmarks.layout_rows import rows_of
from benchmarks.learning_curves import learning_curves, main
from tests.refusal import refused
from tests.runs import Capture


def test_trainings_are_collected_once_and_drawn(
    undisturbed: Path, tmp_path: Path, capsys: Capture
) -> None:
    csv, figure = tmp_path / "curves.csv", tmp_path / "curves.png"
    collect = ["collect", "--csv", str(csv), "--run"]
    assert main([*collect, str(undisturbed)]) == 0
    before, rows = csv.read_bytes(), rows_of(csv)
    (metrics,) = undisturbed.glob("retrain/*/seed-*/metrics.jsonl")
    logged = [json.loads(line) for line in metrics.read_text().splitlines()]
    wanted = {row["step"]: row["loss_nats"] for row in logged if row["kind"] == "train"}
    found = {int(row["step"]): float(row["train_nats"]) for row in rows}
    assert len(found) > 3
    assert found == pytest.approx(wanted, abs=5e-5)
    assert main([*collect, str(undisturbed)]) == 0
    assert csv.read_bytes() == before
    draw = ["draw", "--csv", str(csv), "--figure", str(figure), "--less", rows[0]["layout"]]
    assert main(draw) == 0
    assert figure.read_bytes().startswith(b"\x89PNG")
    other = shutil.copytree(undisturbed, tmp_path / "other")
    (experiment,) = other.glob("retrain/*/seed-*/experiment.yaml")
    experiment.write_text(experiment.read_text().replace("d_model: 16", "d_model: 8"))
    assert "model.d_model is 16, now 8" in refused(main, capsys, *collect, other)


def test_every_training_is_a_line_less_the_mean_of_as_many_steps() -> None:
    row = {"layout": "ad", "steps": "9", "lr": "0.1"}
    rows = [row | {"seed": "0", "step": f"{at}", "train_nats": f"{7 - at}"} for at in range(3)]
    again = [one | {"seed": "8", "train_nats": f"{2 + at}"} for at, one in enumerate(rows)]
    other = [one | {"layout": "aadd", "steps": "60"} for one in rows]
    longer = [one | {"steps": "60", "train_nats": "5"} for one in rows]
    (axes,) = learning_curves([*rows, *again, *longer, *other], "ad").axes
    nats = [np.asarray(line.get_ydata()).tolist() for line in axes.get_lines()]
    assert nats == [[2.5, 1.5, 0.5], [-2.5, -1.5, -0.5], [0, 0, 0], [2, 1, 0]]
    with pytest.raises(ValueError, match=r"^aadd: no training of 9 steps"):
        learning_curves([*rows, *other], "aadd")
