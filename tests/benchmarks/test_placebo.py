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


def test_a_row_and_its_summary_have_the_figures_of_the_run(
    undisturbed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """T is the guard's, from alpha's first step on."""
    folder = shutil.copytree(undisturbed / "search/seed-0", tmp_path / "seed-0")
    settings = ["search.alpha.warmup_fraction=0.5", "search.steps=480"]
    experiment = load_experiment(folder / "experiment.yaml", settings)
    (folder / "experiment.yaml").write_text(dump_experiment(experiment))
    walk_NLC = np.random.default_rng(0).normal(0.002, 0.05, size=(480, 4, 3)).cumsum(0)
    alpha_NLC, labels = walk_NLC.astype(np.float32), ["attention", "dense", "identity"]
    write(folder / "pi.npz", alpha_NLC, labels)
    row = figures_of(folder)
    path_NLC = np.concatenate([np.zeros((1, 4, 3)), alpha_NLC[240:].astype(float)])
    plan = SearchPlan(experiment.search, 480, 0, 1)
    t_L = directedness(path_NLC, [plan.alpha_lr(step) for step in range(240, 480)])
    assert row["t"] == pytest.approx(t_L.tolist())
    assert (row["steps"], row["alpha_steps"], row["peak_lr"]) == (480, 240, 0.05)
    with np.load(folder / "pi.npz") as arrays:
        pi_LC = arrays["pi"][-1]
    ordered = np.sort(pi_LC, axis=1)
    assert row["margins"] == pytest.approx(ordered[:, -1] - ordered[:, -2])
    assert row["choice"] == [labels[k] for k in pi_LC.argmax(1)]
    place = {"variant": "30", "side": "real"}
    rows = [{**place, "seed": 0, **row}, {**place, "seed": 1, **row}]
    rows[1]["choice"] = [row["choice"][0], *["none"] * 3]
    summary = summary_of(rows)
    assert summary["pairs_alike"] == 0.25
    assert summary["largest_margin"] == pytest.approx((ordered[:, -1] - ordered[:, -2]).max())
    print_tables(rows, [summary])
    assert "| 30 | 240 | 0.05 | real |" in capsys.readouterr().out
