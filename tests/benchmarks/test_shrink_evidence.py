"""What the rows of shrinking are of: one budget, one rate, one text."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from benchmarks import shrink_evidence
from model import load_architecture
from nas.baselines import PARENT
from pipeline.baselines import Entry
from pipeline.experiment import load_experiment
from tests.runs import Capture, code_of, refused, write_json


@pytest.fixture
def parent(undisturbed: Path, experiment_file: Path, tmp_path: Path) -> Path:
    """A trained model, with nats of another text in its result."""
    trained = undisturbed / "retrain/layout-adad/seed-0"
    folder = Path(shutil.copytree(trained / "model", tmp_path / "p/model"))
    result = json.loads((trained / "result.json").read_text())
    write_json(folder / "result.json", result | {"test": {"nats_per_token": 99.0}})
    return folder


def test_what_one_budget_made_stands_in_no_row_of_another(
    parent: Path, experiment_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:  # fmt: skip
    monkeypatch.setattr(shrink_evidence, "shrink", lambda *given: None)
    monkeypatch.setattr(shrink_evidence, "anew_jobs", lambda *given: {})
    rows = [{"way": "chosen", "layout": "ad"}]
    monkeypatch.setattr(shrink_evidence, "compared_rows", lambda *given: rows)

    def given(budget: str, csv: str, run: str, tokens: int = 256) -> list[Any]:
        return ["train", experiment_file, "--parents", parent, "--budget", budget,
                "--csv", tmp_path / csv, "--run", tmp_path / run,
                "--set", f"derive.shrink.tokens={tokens}"]  # fmt: skip

    assert code_of(shrink_evidence, *given("0.5x", "a.csv", "a")) == 0
    assert code_of(shrink_evidence, *given("0.5x", "a.csv", "a")) == 0
    for budget, tokens, said in (
        ("0.8x", 256, "budget is 0.5x, now 0.8x"),
        ("0.5x", 512, "tokens is 256, now 512"),
    ):
        for csv, run in (("a.csv", "b"), (f"{tokens}.csv", "a")):
            assert said in refused(shrink_evidence, capsys, *given(budget, csv, run, tokens))


def test_trainings_anew_have_folders_of_their_rates_and_no_weights_of_the_parent(
    parent: Path, experiment_file: Path, tmp_path: Path
) -> None:
    base = load_experiment(experiment_file, ["derive.shrink.tokens=300"])
    experiment = shrink_evidence.of_parent(base, parent, "0.5x")
    assert experiment.derive.shrink.tokens == 300
    folders = set[Path]()
    for lr in (None, 0.01):
        layouts = [("chosen", False), ("ad", False), ("chosen", True), ("ad", True)]
        jobs = shrink_evidence.anew_jobs(experiment, tmp_path, layouts, "da", lr)
        folders |= {job.folder for job in jobs.values()}
        for way, job in jobs.items():
            retrain = job.experiment.retrain
            assert retrain.start is None
            assert (retrain.teacher is not None) == way.endswith("taught")
            assert f"{retrain.steps} steps" in way
            assert retrain.optimiser.lr == (lr or experiment.retrain.optimiser.lr)
    assert len(folders) == 16


def test_the_parents_nats_are_of_the_text_of_its_children(
    parent: Path, experiment_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = shrink_evidence.of_parent(load_experiment(experiment_file), parent, "0.5x")
    scores = {split: {"nats_per_token": nats} for split, nats in (("valid", 1.0), ("test", 2.0))}
    rows = [{"name": PARENT, "relative_latency": 1.0}]
    write_json(tmp_path / "comparison.json", {"rows": rows, "results": {PARENT: [scores]}})
    entry = Entry(load_architecture(parent / "architecture.json"), PARENT, [PARENT])
    monkeypatch.setattr(shrink_evidence, "entries_of", lambda plan: [entry])
    assert experiment.derive.layout == entry.architecture.letters(), "it is recovered whole too"
    (row,) = shrink_evidence.compared_rows(experiment, tmp_path)
    assert (row["valid_nats"], row["test_nats"], row["steps"]) == ("1.0", "2.0", "25")
