"""The study of a sweep in Optuna's storage: trials that wait, run, end, and are run again.

Who starts the sweep enqueues every trial, so that their number is exact however many workers run
them. Each has a number of its own, which an attempt after a worker's death inherits. What a worker
asks for beyond them is surplus, and nobody's.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import optuna
from optuna.exceptions import StorageInternalError
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback, get_storage
from optuna.storages._heartbeat import BaseHeartbeat
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import event
from sqlalchemy.exc import SQLAlchemyError

from utils.text import masked

# User attributes of a trial: its number in the sweep, why it has no value, or not one of its own,
# and the seconds that it ran before it was set aside.
NUMBER = "number"
REASON = "reason"
EARLIER_S = "earlier_s"
_HEARTBEATS = 3  # in the time after which a worker is dead
_SQLITE_WAIT_S = 120
_POLL_S = 1.0


@contextmanager
def reached(url: str) -> Iterator[None]:
    """Say in one line, without a password, that a database cannot be used."""
    try:
        yield
    except (SQLAlchemyError, StorageInternalError) as error:
        raise ValueError(_problem(url, error)) from error


def _problem(url: str, error: Exception) -> str:
    cause = error.__cause__ or error
    said = " ".join(str(getattr(cause, "orig", None) or cause).split())
    return (
        f"sweep.storage: {masked(url)} cannot be used ({masked(said):.300}); when it answers, the "
        "same command resumes"
    )


def open_storage(url: str, grace_s: int, retries: int) -> optuna.storages.BaseStorage:
    """Open a database of Optuna's, or make its tables.

    A trial whose worker has had no heartbeat for `grace_s` is run again, at most `retries` times.
    """
    options: dict[str, Any] = {"pool_pre_ping": True}
    if is_file := url.startswith("sqlite"):
        options["connect_args"] = {"timeout": _SQLITE_WAIT_S}
    address = url.replace("postgresql://", "postgresql+psycopg://", 1)
    try:
        storage = _Storage(
            # Optuna fills in {...}, which may stand in a name.
            address.replace("{", "{{").replace("}", "}}"),
            options,
            heartbeat_interval=max(1, grace_s // _HEARTBEATS),
            grace_period=grace_s,
            # What a pruner has heard of it stays: nothing is judged again by those that came since.
            heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback(
                retries, inherit_intermediate_values=True
            ),
        )
    except (ImportError, RuntimeError, ValueError) as error:
        raise ValueError(_problem(url, error)) from None
    if is_file:
        _lock_in_transactions(storage.engine)
    return get_storage(storage)


class _Storage(RDBStorage):
    def record_heartbeat(self, trial_id: int) -> None:
        # Optuna's thread would end with one failure, and the trial that runs be taken for dead.
        with suppress(StorageInternalError):
            super().record_heartbeat(trial_id)


def _lock_in_transactions(engine: Any) -> None:
    """Let a transaction of SQLite lock the file from its beginning.

    SQLite knows no SELECT ... FOR UPDATE, with which Optuna lets one worker alone take a trial.
    """

    def connected(connection: Any, _: object) -> None:
        connection.isolation_level = None  # the driver would begin by itself, too late

    engine.dispose()  # the connections that made the tables
    event.listen(engine, "connect", connected)
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))


def number_of(trial: FrozenTrial) -> int:
    """The number that a trial has in the sweep, and all attempts at it."""
    return int(trial.user_attrs.get(NUMBER, trial.number))


@dataclass(frozen=True)
class TrialEntry:
    """A trial of the sweep, with all attempts at it in Optuna's study, in order."""

    number: int
    attempts: tuple[FrozenTrial, ...]

    @property
    def last(self) -> FrozenTrial:
        """The attempt that counts."""
        return self.attempts[-1]

    @property
    def finished(self) -> bool:
        """True where nothing more will come of it."""
        return self.last.state.is_finished()


def entries(study: optuna.Study) -> list[TrialEntry]:
    """Every trial of the sweep with its attempts, by number."""
    attempts: dict[int, list[FrozenTrial]] = {}
    for trial in study.get_trials(deepcopy=False):
        if NUMBER in trial.user_attrs:
            attempts.setdefault(number_of(trial), []).append(trial)
    return [TrialEntry(number, tuple(trials)) for number, trials in sorted(attempts.items())]


def fill(study: optuna.Study, points: Sequence[Mapping[str, Any]]) -> None:
    """Enqueue a trial for each point that has none: values that are fixed, by key."""
    known = {entry.number for entry in entries(study)}
    for number, point in enumerate(points):
        if number not in known:
            study.enqueue_trial(dict(point), user_attrs={NUMBER: number})


def run_again(study: optuna.Study, trial: FrozenTrial) -> None:
    """Enqueue a trial with its values once more, as if it had never failed."""
    kept = trial.user_attrs.keys() & {NUMBER, EARLIER_S}
    study.add_trial(
        optuna.create_trial(
            state=TrialState.WAITING,
            params=trial.params,
            distributions=trial.distributions,
            user_attrs={key: trial.user_attrs[key] for key in kept},
            system_attrs={**trial.system_attrs, "retry_history": []},
            intermediate_values=trial.intermediate_values,
        )
    )


def set_aside(trial: optuna.Trial) -> None:
    """Let a trial that was asked to stop wait as it is, before those that never began."""
    assert trial.datetime_start is not None
    ran_s = (datetime.now() - trial.datetime_start).total_seconds()
    trial.set_user_attr(EARLIER_S, trial.user_attrs.get(EARLIER_S, 0.0) + ran_s)
    trial.study._storage.set_trial_state_values(trial._trial_id, TrialState.WAITING)


def retry_failed(study: optuna.Study) -> int:
    """Enqueue every failed trial again; how many there were."""
    failed = [entry.last for entry in entries(study) if entry.last.state == TrialState.FAIL]
    for trial in failed:
        run_again(study, trial)
    return len(failed)


def finished_before(trial: optuna.Trial) -> FrozenTrial | None:
    """A finished trial with the values of this one, so that nothing need be trained again."""
    done = trial.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return next((other for other in done if other.params == trial.params), None)


def wait_for_a_trial(study: optuna.Study, is_ending: Callable[[], bool]) -> bool:
    """Wait until a trial can be run; False where none waits and none runs any more."""
    storage, known = study._storage, set[int]()
    while not is_ending():
        optuna.storages.fail_stale_trials(study)
        found = [entry.last for entry in entries(study)]
        if waiting := [trial for trial in found if trial.state == TrialState.WAITING]:
            for trial in waiting:
                # By its heartbeat from before it was set aside, who takes it would seem dead.
                if isinstance(storage, BaseHeartbeat) and trial.datetime_start is not None:
                    storage.record_heartbeat(trial._trial_id)
            return True
        running = {trial._trial_id for trial in found if trial.state == TrialState.RUNNING}
        if not running:
            return False
        if isinstance(storage, BaseHeartbeat):
            # Optuna misses no trial that never had a heartbeat: its worker died too early.
            for trial_id in running - known:
                storage.record_heartbeat(trial_id)
        known |= running
        time.sleep(_POLL_S)
    return False
