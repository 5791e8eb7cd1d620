"""A run of a trial: phases by the functions of the verbs, objectives from its own files."""

import json
import signal
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import Mock

import optuna
import pytest

import derive
import retrain
import search
from hpo.study import REASON
from model import Architecture
from pipeline.experiment import load_experiment
from pipeline.sweep.plan import identity, sweep_of
from pipeline.sweep.worker import (
    USELESS,
    Pruning,
    TrialFailed,
    TrialObjective,
    run_one,
    run_seed,
)
from tests.data.models import given_model
from tests.runs import assert_same, last_step, locked_by_another, rows, run
from tests.sweeping import add_sweep, memory_study
from training.signals import Stopped, StopRequest

SETTINGS = ["run.figures=false", "derive.gap=false"]


def outcome(file: Path, folder: Path, *more: str) -> tuple[dict[str, float], Architecture]:
    """What a run of the tiny experiment comes to."""
    return run_seed(load_experiment(file, [*SETTINGS, *more]), folder, StopRequest(), None)


def test_a_trial_is_what_the_verbs_would_have_done(experiment_file: Path, tmp_path: Path) -> None:
    found, architecture = outcome(experiment_file, tmp_path / "one")
    for script in (search, derive, retrain):
        settings = [part for setting in SETTINGS for part in ("--set", setting)]
        run(script, experiment_file, "--run", tmp_path / "two", *settings)
    (result,) = (tmp_path / "one").glob("retrain/*/seed-0/result.json")
    for phase in ("search/seed-0", f"retrain/{result.parents[1].name}/seed-0"):
        assert_same(tmp_path / "one" / phase, tmp_path / "two" / phase)
    bits = json.loads(result.read_text())["valid"]["bits_per_byte"]
    assert found["retrained"] == bits
    assert set(found) == {"retrained", "flops", "parameters"}
    assert architecture.costs is not None
    assert found["parameters"] == architecture.costs.parameters


@pytest.mark.parametrize(
    "settings",
    [["derive.method=interleaved", "model.candidates=[attention, dense]"],
     ["derive.method=layout", "derive.layout=a a a a", "model.candidates=[attention]"],
     ["derive.method=interleaved", "model.rezero=true", "search.steps=null"]],
)  # fmt: skip
def test_a_trial_of_a_rule_searches_nothing(
    experiment_file: Path, tmp_path: Path, settings: list[str]
) -> None:
    """So a training alone can be swept, also where a search has no choice."""
    found, architecture = outcome(experiment_file, tmp_path / "r", *settings)
    assert found["retrained"] > 0
    assert not (tmp_path / "r/search").exists()
    assert not {"search", "search_seed"} & architecture.provenance.keys()


def test_a_stop_between_phases_ends_the_trial(experiment_file: Path, tmp_path: Path) -> None:
    stop = StopRequest()
    stop.number = 15
    with pytest.raises(Stopped):
        run_seed(load_experiment(experiment_file, SETTINGS), tmp_path / "r", stop, None)
    assert (tmp_path / "r" / "search" / "seed-0" / "pi.csv").exists()
    assert not (tmp_path / "r" / "architecture.json").exists()


def test_a_trial_that_is_asked_to_end_while_it_prepares_does_not_train_its_search(
    experiment_file: Path, tmp_path: Path
) -> None:
    experiment = load_experiment(experiment_file, SETTINGS)
    with StopRequest().listening() as stop:
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(Stopped):
            run_seed(experiment, tmp_path / "r", stop, None)
    assert last_step(tmp_path / "r/search/seed-0/metrics.jsonl") <= 1


def test_settings_that_were_trained_before_are_not_trained_again(
    experiment_file: Path, tmp_path: Path
) -> None:
    file = add_sweep(experiment_file, trials=2)
    sweep = sweep_of(load_experiment(file), tmp_path / "run")
    study = memory_study(sweep, [sweep.baseline or {}] * 2)
    study.optimize(TrialObjective(sweep, StopRequest(), threads=1), n_trials=2)
    first, second = study.trials
    assert first.values == second.values
    assert second.user_attrs["runs"] == first.user_attrs["runs"]
    assert (first.user_attrs.get(REASON), second.user_attrs[REASON]) == (None, "as trial 0")
    assert [path.name for path in sweep.trial(1).iterdir()] == ["trial.log"]


def test_times_of_another_batch_are_another_sweeps(experiment_file: Path, tmp_path: Path) -> None:
    file = add_sweep(experiment_file, trials=1)
    batches = [load_experiment(file, [f"costs.batch={batch}"]) for batch in (1, 64)]
    one, other = (identity(sweep_of(experiment, tmp_path)) for experiment in batches)
    assert one != other


def test_a_worker_whose_trial_was_taken_for_dead_goes_on(
    experiment_file: Path, tmp_path: Path
) -> None:
    file = add_sweep(experiment_file, trials=1)
    study = memory_study(sweep_of(load_experiment(file, []), tmp_path), [{}])

    def slept(trial: optuna.Trial) -> list[float]:
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
        return [1.0]

    run_one(study, slept)
    assert [trial.state.name for trial in study.trials] == ["FAIL"]


@pytest.mark.parametrize("failing", ["pathlib.Path.mkdir", "pipeline.sweep.worker.run_seed"])
def test_a_full_disk_ends_the_worker_and_the_trial_waits(
    experiment_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """As a failure of the trial's own it would be one of all that follow, in a second."""
    sweep = sweep_of(load_experiment(add_sweep(experiment_file, trials=2), []), tmp_path)
    study = memory_study(sweep, [{}, {}])
    sweep.trial(0).mkdir(parents=True)
    full = OSError(28, "No space left on device", str(tmp_path / "x"))
    monkeypatch.setattr(failing, Mock(side_effect=full))
    with pytest.raises(SystemExit) as end:
        run_one(study, TrialObjective(sweep, StopRequest(), threads=1))
    assert end.value.code == USELESS
    assert [trial.state.name for trial in study.trials] == ["WAITING", "WAITING"]


def test_a_trial_waits_for_the_process_that_has_its_folder(
    experiment_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which was taken for dead, as where a machine slept."""
    sweep = sweep_of(load_experiment(add_sweep(experiment_file, trials=1), []), tmp_path)
    study, held = memory_study(sweep), ExitStack()
    sweep.trial(0).mkdir(parents=True)
    held.enter_context(locked_by_another(sweep.trial(0), "lock"))
    monkeypatch.setattr("pipeline.sweep.worker.time.sleep", lambda _: held.close())
    run_one(study, TrialObjective(sweep, StopRequest(), threads=1))
    assert study.trials[0].state.name == "COMPLETE"


def test_a_tokenizer_that_loses_text_fails_the_trial_before_its_search(
    experiment_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "lossy.model").write_bytes(given_model())
    given = f"data.tokenizer={{kind: given, model: {tmp_path}/lossy.model}}"
    experiment = load_experiment(experiment_file, [*SETTINGS, given])
    with pytest.raises(TrialFailed, match=r"data\.tokenizer: no bits per byte to compare"):
        run_seed(experiment, tmp_path / "r", StopRequest(), None)
    assert not (tmp_path / "r" / "search").exists()


def test_a_pruner_hears_of_validations() -> None:
    study = optuna.create_study(pruner=optuna.pruners.ThresholdPruner(upper=9.0))
    pruning = Pruning(study.ask())
    pruning.log(1, {"valid_model/bits_per_byte": 2.0, "train/loss_nats": 1.0})
    pruning.log(2, {"train/loss_nats": 99.0})
    assert study.trials[0].intermediate_values == {1: 2.0}
    with pytest.raises(optuna.TrialPruned, match=r"at step 99, at 10\.0000 bits per byte"):
        pruning.log(99, {"valid_model/bits_per_byte": 10.0})


def test_a_pruner_ends_a_retraining(experiment_file: Path, tmp_path: Path) -> None:
    study = optuna.create_study(pruner=optuna.pruners.ThresholdPruner(upper=0.1))
    experiment = load_experiment(experiment_file, [*SETTINGS, "derive.method=interleaved"])
    trial = study.ask()
    with pytest.raises(optuna.TrialPruned):
        run_seed(experiment, tmp_path / "r", StopRequest(), trial)
    ((step, bits),) = study.trials[0].intermediate_values.items()
    (file,) = (tmp_path / "r").glob("retrain/*/seed-0/metrics.jsonl")
    (row,) = (one for one in rows(file) if one["kind"] == "valid")
    assert (row["step"], row["bits_per_byte"]) == (step, bits)
