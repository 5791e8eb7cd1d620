"""The study of a sweep: exact numbers, one worker a trial, and what becomes of lost trials."""

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import optuna
import pytest
from optuna.exceptions import StorageInternalError
from optuna.storages import RDBStorage
from optuna.storages._heartbeat import BaseHeartbeat
from optuna.trial import TrialState

from hpo.config import SweepConfig
from hpo.samplers import NumberedSampler
from hpo.study import (
    EARLIER_S,
    NUMBER,
    REASON,
    entries,
    fill,
    finished_before,
    open_storage,
    retry_failed,
    set_aside,
    wait_for_a_trial,
)
from tests.postgres_server import postgres, postgres_session

__all__ = ["postgres", "postgres_session"]


@pytest.fixture
def study() -> optuna.Study:
    """A study of three waiting trials; the first has fixed values."""
    made = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    fill(made, [{"x": 1.0}, {}, {}])
    return made


def states(study: optuna.Study) -> list[list[str]]:
    """States of the attempts at each trial."""
    return [[attempt.state.name for attempt in entry.attempts] for entry in entries(study)]


def test_the_number_of_trials_is_exact_whatever_is_asked_for(study: optuna.Study) -> None:
    fill(study, [{"x": 1.0}, {}, {}, {}])
    assert states(study) == [["WAITING"]] * 4
    for _ in range(4):
        study.ask()
    assert study.ask().user_attrs.get(NUMBER) is None, "surplus, and nobody's"
    assert states(study) == [["RUNNING"]] * 4


def stored(url: str) -> optuna.Study:
    """The study of a sweep, as a worker opens it."""
    sweep = SweepConfig(space={"x": {"low": 0, "high": 2}}, trials=2, sampler={"kind": "random"})
    study = optuna.create_study(
        storage=open_storage(url, 10, 1), study_name="s", load_if_exists=True
    )
    study.sampler = NumberedSampler(sweep)
    return study


def test_a_dead_worker_s_trial_waits_again_with_its_values_as_often_as_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of one that died before its first heartbeat, once somebody waits for it."""
    study = stored(f"sqlite:///{tmp_path / 'study.db'}")
    fill(study, [{"x": 1.0}])
    backend = study._storage._backend
    monkeypatch.setattr(backend, "grace_period", -1)  # whoever is heard of is dead
    polls = list[float]()
    monkeypatch.setattr("hpo.study.time.sleep", polls.append)
    for attempt in range(2):
        trial = study.ask()
        assert trial.suggest_float("x", 0, 2) == 1.0
        trial.suggest_float("y", 0, 2)
        trial.report(3.0 - attempt, step=50)
        optuna.storages.fail_stale_trials(study)
        assert states(study) == [["FAIL"] * attempt + ["RUNNING"]], "Optuna does not miss it"
        assert wait_for_a_trial(study, lambda: len(polls) > 9) == (not attempt)
        assert states(study) == [["FAIL"] * (attempt + 1) + ["WAITING"] * (1 - attempt)]
    assert len(polls) == 2
    first, second = entries(study)[0].attempts
    assert first.params == second.params
    assert first.intermediate_values == second.intermediate_values == {50: 3.0}
    assert entries(study)[0].finished


def test_who_waits_counts_from_then_on_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial whose worker is silent for longer would never be missed otherwise."""
    study, polls, recorded = (
        stored(f"sqlite:///{tmp_path / 'study.db'}"),
        list[float](),
        list[int](),
    )
    fill(study, [{}, {}])
    ids = [study.ask()._trial_id for _ in range(2)]
    monkeypatch.setattr("hpo.study.time.sleep", polls.append)
    monkeypatch.setattr(study._storage._backend, "record_heartbeat", recorded.append)
    assert not wait_for_a_trial(study, lambda: len(polls) == 5)
    assert sorted(recorded) == ids


def test_a_trial_that_was_stopped_goes_on_first_and_has_lost_nothing(tmp_path: Path) -> None:
    """Behind all others, trials longer than their user's sessions would never end."""
    study = stored(f"sqlite:///{tmp_path / 'study.db'}")
    fill(study, [{}, {}, {}])
    trial, other = study.ask(), study.ask()
    value = trial.suggest_float("y", 0, 2)
    trial.report(5.0, step=50)
    for passed in (1, 2):
        time.sleep(0.01)
        set_aside(trial)
        assert states(study) == [["WAITING"], ["RUNNING"], ["WAITING"]]
        assert entries(study)[0].last.user_attrs[EARLIER_S] >= 0.01 * passed
        trial = study.ask()
        assert (trial.user_attrs[NUMBER], trial.params) == (0, {"y": value})
    study.tell(other, 1.0)
    study.tell(trial, 2.0)
    assert study.trials[0].intermediate_values == {50: 5.0}


def test_a_trial_that_waited_for_long_does_not_seem_lost_as_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = stored(f"sqlite:///{tmp_path / 'study.db'}")
    fill(study, [{}, {}])
    trial, recorded = study.ask(), list[int]()
    set_aside(trial)
    monkeypatch.setattr(study._storage._backend, "record_heartbeat", recorded.append)
    assert wait_for_a_trial(study, lambda: False)
    assert recorded == [trial._trial_id]


def test_failed_trials_run_again_as_if_they_had_never_failed(study: optuna.Study) -> None:
    trial = study.ask()
    trial.set_user_attr(REASON, "no luck")
    study.tell(trial, state=TrialState.FAIL)
    assert retry_failed(study) == 1
    assert states(study)[0] == ["FAIL", "WAITING"]
    assert REASON not in entries(study)[0].last.user_attrs


def test_settings_that_were_trained_before_are_known(study: optuna.Study) -> None:
    of = optuna.distributions.FloatDistribution(0, 2)
    first = study.ask({"x": of})
    second = study.ask({"x": of})
    assert finished_before(second) is None
    study.tell(first, 3.0)
    assert finished_before(second) is None, "other values"
    study.enqueue_trial({"x": 1.0})
    study.ask({"x": of})
    found = finished_before(study.ask({"x": of}))
    assert found is not None
    assert (found.number, found.values) == (0, [3.0])


def test_nobody_waits_where_nothing_waits_or_runs(study: optuna.Study) -> None:
    assert wait_for_a_trial(study, lambda: False)
    assert not wait_for_a_trial(study, lambda: True)
    for _ in range(3):
        study.tell(study.ask(), 1.0)
    assert not wait_for_a_trial(study, lambda: False)


CLAIM = """
import sys, optuna
from hpo.study import NUMBER, open_storage
optuna.logging.set_verbosity(optuna.logging.ERROR)
study = optuna.load_study(study_name="s", storage=open_storage(sys.argv[1], 10, 1))
print("ready", flush=True)
sys.stdin.readline()
while (number := study.ask().user_attrs.get(NUMBER)) is not None:
    print(number)
"""


@pytest.mark.slow
@pytest.mark.parametrize("on_server", [False, True])
def test_processes_take_distinct_trials(
    tmp_path: Path, request: pytest.FixtureRequest, on_server: bool
) -> None:
    """Optuna alone gives one trial of SQLite to two that ask at once."""
    url, trials = f"sqlite:///{tmp_path / 'study.db'}", 60
    if on_server:
        url = request.getfixturevalue("postgres").database()
    study = optuna.create_study(storage=open_storage(url, 10, 1), study_name="s")
    fill(study, [{}] * trials)
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", CLAIM, url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    claimed = Counter(number for one in workers for number in one.communicate()[0].split())
    assert claimed == Counter(map(str, range(trials)))


def test_a_heartbeat_that_fails_once_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Optuna's thread would end with its error, and the trial be taken for dead."""
    storage = open_storage(f"sqlite:///{tmp_path / 'study.db'}", 10, 1)

    def busy(self: RDBStorage, trial_id: int) -> None:
        raise StorageInternalError("database is locked")

    monkeypatch.setattr(RDBStorage, "record_heartbeat", busy)
    assert isinstance(storage, BaseHeartbeat)
    storage.record_heartbeat(0)
