"""A run of a trial: phases by the functions of the verbs, objectives from its own files."""

import json
from pathlib import Path

import optuna
import pytest

import derive
import retrain
import search
from pipeline.experiment import load_experiment
from pipeline.sweep.worker import Pruning, SeedOutcome, run_seed, search_curve
from tests.runs import assert_same, run
from training.signals import Stopped, StopRequest

SETTINGS = ["run.figures=false", "derive.gap=false"]


def outcome(file: Path, folder: Path, *objectives: str) -> SeedOutcome:
    """What a run of the tiny experiment comes to."""
    return run_seed(load_experiment(file, SETTINGS), objectives, folder, StopRequest(), None)


def test_a_trial_is_what_the_verbs_would_have_done(experiment_file: Path, tmp_path: Path) -> None:
    found = outcome(experiment_file, tmp_path / "one", "retrained")
    for script in (search, derive, retrain):
        settings = [part for setting in SETTINGS for part in ("--set", setting)]
        run(script, experiment_file, "--run", tmp_path / "two", *settings)
    (result,) = (tmp_path / "one").glob("retrain/*/seed-0/result.json")
    for phase in ("search/seed-0", f"retrain/{result.parents[1].name}/seed-0"):
        assert_same(tmp_path / "one" / phase, tmp_path / "two" / phase)
    bits = json.loads(result.read_text())["valid"]["bits_per_byte"]
    assert found.objectives["retrained"] == bits
    assert set(found.objectives) == {"retrained", "onehot", "flops", "parameters"}
    assert found.objectives["parameters"] == found.facts["parameters"]
    curve = search_curve(tmp_path / "one/search/seed-0/metrics.jsonl", "onehot")
    assert found.objectives["onehot"] == curve[max(curve)]
    assert found.facts["went_on_from"] == []


def test_without_its_objective_nothing_is_retrained(experiment_file: Path, tmp_path: Path) -> None:
    found = outcome(experiment_file, tmp_path / "run", "onehot")
    assert "retrained" not in found.objectives
    assert not (tmp_path / "run" / "retrain").exists()


def test_a_stop_between_phases_ends_the_trial(experiment_file: Path, tmp_path: Path) -> None:
    stop = StopRequest()
    stop.number = 15
    with pytest.raises(Stopped):
        run_seed(load_experiment(experiment_file, SETTINGS), ["onehot"], tmp_path / "r", stop, None)
    assert (tmp_path / "r" / "search" / "seed-0" / "pi.csv").exists()
    assert not (tmp_path / "r" / "architecture.json").exists()


def test_a_pruner_hears_of_validations_those_before_a_resume_too(
    undisturbed: Path,
) -> None:
    metrics = undisturbed / "search" / "seed-0" / "metrics.jsonl"
    curve = search_curve(metrics, "soft")
    first = min(curve)
    study = optuna.create_study(pruner=optuna.pruners.ThresholdPruner(upper=9.0))
    trial = study.ask()
    pruning = Pruning(trial, metrics, first)
    assert study.trials[0].intermediate_values == {first: curve[first]}
    pruning.log(first + 1, {"valid_soft/bits_per_byte": 2.0, "train/loss_nats": 1.0})
    pruning.log(first + 2, {"valid_onehot/bits_per_byte": 99.0})
    with pytest.raises(optuna.TrialPruned, match=r"at search step 99, at 10\.0000 bits per byte"):
        pruning.log(99, {"valid_soft/bits_per_byte": 10.0})
