"""`model.softmax.cutoffs: auto`: saved as auto, built, costed and written down in numbers."""

import json
from pathlib import Path
from typing import Any

import pytest

import compare
import derive
import retrain
import search
from model import Architecture, load_architecture, load_model
from model.cutoffs import optimal_cutoffs
from pipeline.derive import derive as derive_layout
from pipeline.plan import RunPlan
from pipeline.retrain import retrain_trainer
from tests.pipeline.conftest import plan_of
from tests.runs import run

AUTO = "model.softmax={cutoffs: auto, clusters: 3, factor: 2, tied: true}"


@pytest.fixture
def bench(experiment_file: Path, tmp_path: Path) -> RunPlan:
    return plan_of(experiment_file, tmp_path / "run", AUTO)


def wanted(bench: RunPlan) -> tuple[int, ...]:
    return optimal_cutoffs(
        bench.prepared.counts_V, d_model=16, widths=(8, 4), tokens=4 * 16, least_head_mass=0.75
    )


def numbers(bench: RunPlan) -> str:
    """The same setting with the numbers written out."""
    return f"model.softmax={{cutoffs: {list(wanted(bench))}, factor: 2}}"


def interleaved(bench: RunPlan) -> Architecture:
    return derive_layout(bench, method="interleaved")


def test_the_cutoffs_are_those_for_the_tokens_of_a_step(
    bench: RunPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The measured constants make no difference of it; those of another machine may."""
    given: dict[str, Any] = {}

    def spying(count_V: Any, **options: Any) -> tuple[int, ...]:
        given.update(options)
        return (20, 60)

    monkeypatch.setattr("model.cutoffs.optimal_cutoffs", spying)
    assert bench.softmax.cutoffs == (20, 60)
    sizes = {"d_model": 16, "widths": (8, 4), "tokens": 4 * 16}
    assert given == {**sizes, "head_width": None, "least_head_mass": 0.75}


def test_a_given_architecture_keeps_its_own_cutoffs(bench: RunPlan, experiment_file: Path) -> None:
    trainer = retrain_trainer(bench, interleaved(plan_of(experiment_file, bench.run_dir)))
    assert "softmax: cutoffs [20, 60], " in trainer.summary


def test_an_architecture_has_the_numbers(bench: RunPlan, experiment_file: Path) -> None:
    architecture = interleaved(bench)
    same = interleaved(plan_of(experiment_file, bench.run_dir, numbers(bench)))
    assert architecture.softmax == same.softmax
    assert architecture.softmax.cutoffs == wanted(bench)
    assert architecture.costs == same.costs
    written = json.loads(architecture.to_json())
    assert written["softmax"] == {
        "cutoffs": list(wanted(bench)), "factor": 2.0, "sizes": None, "tied": True,
    }  # fmt: skip


@pytest.mark.slow
def test_the_whole_way_with_auto(experiment_file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run(search, experiment_file, "--run", folder, "--set", AUTO)
    run(derive, folder)
    run(retrain, folder)
    run(compare, folder)
    bench = plan_of(folder / "search/seed-0/experiment.yaml", folder)
    assert bench.experiment.model.softmax.cutoffs == "auto"
    architecture = load_architecture(folder / "architecture.json")
    assert architecture.softmax.cutoffs == wanted(bench)
    assert load_model(folder / "model").softmax.bounds == (*wanted(bench), 257)
    for log in (*folder.glob("search/*/train.log"), *folder.glob("retrain/*/*/train.log")):
        assert f"softmax: cutoffs {list(wanted(bench))} (auto), " in log.read_text()
    assert len(json.loads((folder / "comparison.json").read_text())["rows"]) > 2
