"""What a trial's run directory says."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from model import load_architecture
from pipeline.experiment import load_experiment
from pipeline.processes.run_scripts import Limits, expected_folders
from pipeline.processes.script_process import Watcher
from pipeline.sweep import trial
from pipeline.sweep.trial import read_outcome, search_curve
from utils.files import write_whole


@pytest.fixture
def run(undisturbed: Path, tmp_path: Path) -> Path:
    """A run with search, layout and retraining."""
    folder = Path(shutil.copytree(undisturbed, tmp_path / "run"))
    (result,) = folder.glob("retrain/*/seed-0")
    shutil.copy(result / "architecture.json", folder)
    return folder


def test_the_objectives_are_those_of_the_run_s_own_files(run: Path) -> None:
    (path,) = run.glob("retrain/*/seed-0/result.json")
    result = json.loads(path.read_text())
    result["test"]["bits_per_byte"] = result["valid"]["bits_per_byte"] - 1.0
    path.write_text(json.dumps(result))
    found = read_outcome(run, 0, ["retrained"])
    assert found.objectives["retrained"] == result["valid"]["bits_per_byte"]
    assert found.facts["layout"] == "a d a d"
    assert found.objectives["parameters"] == found.facts["parameters"]
    assert set(found.objectives) == {"retrained", "onehot", "flops", "parameters"}


def test_onehot_is_the_last_validation_and_not_the_lowest(run: Path) -> None:
    path = run / "search" / "seed-0" / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    bits = {10: 3.0, 20: 1.0, 30: 2.0}
    for row in rows:
        if row.get("kind") == "valid" and row.get("net") == "onehot":
            row["bits_per_byte"] = bits[row["step"]]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert search_curve(path, "onehot") == bits
    assert search_curve(path, "soft") != bits
    found = read_outcome(run, 0, ["onehot"])
    assert found.objectives["onehot"] == 2.0
    assert "retrained" not in found.objectives


def test_steps_that_a_run_went_on_from_are_those_of_its_own_phases(run: Path) -> None:
    search, retrained = expected_folders(run, 0)
    for folder, step in ((search, 7), (retrained, 14)):
        environment = json.loads((folder / "environment.json").read_text())
        environment["resumed"] = [{"step": step}]
        write_whole(folder / "environment.json", json.dumps(environment))
    steps = read_outcome(run, 0, ["retrained"]).facts["went_on_from"]
    assert steps == ["search step 7", "retrain step 14"]


@pytest.mark.parametrize("resumed", [[{}], [{"step": "x"}], [{"step": 1e999}], [7], 7])
def test_a_damaged_record_of_resumes_is_named(run: Path, resumed: object) -> None:
    path = run / "search" / "seed-0" / "environment.json"
    write_whole(path, json.dumps({"resumed": resumed}))
    with pytest.raises(ValueError, match=r"environment\.json: resumed: damaged; remove it"):
        read_outcome(run, 0, ["retrained"])


def test_an_architecture_without_costs_is_named(run: Path) -> None:
    path = run / "architecture.json"
    write_whole(path, load_architecture(path).model_copy(update={"costs": None}).to_json())
    with pytest.raises(ValueError, match=r"architecture\.json: costs: missing"):
        read_outcome(run, 0, ["retrained"])


@pytest.mark.parametrize(
    ("objective", "count"), [("retrained", 3), ("onehot", 2), ("flops", 2), ("parameters", 2)]
)
def test_a_trial_is_retrained_for_that_objective_alone(
    run: Path, monkeypatch: pytest.MonkeyPatch, objective: str, count: int
) -> None:
    given: list[Any] = []
    monkeypatch.setattr(trial, "run_scripts", lambda *arguments: given.append(arguments))
    experiment = load_experiment(run / "search" / "seed-0" / "experiment.yaml")
    watcher = Watcher(is_ending=lambda: False)
    outcome = trial.run_seed(experiment, [objective], run, Limits(None, 60), watcher)
    assert outcome == read_outcome(run, 0, [objective])
    ((_, scripts, *_),) = given
    assert scripts == ("search", "derive", "retrain")[:count]
