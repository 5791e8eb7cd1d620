"""The queue of a sweep: which trials wait, run, came to an end, or come back.

Who starts the sweep puts every trial into the study as a waiting one, so their number is exact
however many workers claim them. A trial that a worker lost is told FAIL, and a waiting one with the
same values takes its place; the two are attempts at one *entry*, named by its first number.

All of it is written so that it holds with any number of workers and a kill at any line: a finished
trial cannot be told anything more (Optuna refuses), so of several that find a trial dead one is
first; and where two replacements were put into the queue, the one with the lower number counts.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any

import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, Trial, TrialState

from hpo.heartbeat import HeartbeatMonitor, Lease

ENTRY = "entry"
ROOT = "root"
RETRY_OF = "retry_of"
LOST = "lost"
LOSSES = "losses"
REASON = "reason"
SURPLUS = "surplus"
LEASE = "parnas:lease"
# Of a study: a random text that no other one has.
STUDY = "parnas:study"
STOPPED = "stopped"


class LeaseLost(Exception):
    """The trial is no longer this worker's: it gave no sign of life for too long."""


@dataclass(frozen=True)
class Entry:
    """One trial as a person counts them, with all attempts at it.

    Attributes:
        number: of its first attempt.
        attempts: Optuna's trials, in order.
    """

    number: int
    attempts: tuple[FrozenTrial, ...]

    @property
    def last(self) -> FrozenTrial:
        """The attempt that counts."""
        return self.attempts[-1]

    @property
    def finished(self) -> bool:
        """Whether nothing more will come of it; a lost attempt is going to be replaced."""
        return self.last.state.is_finished() and not _to_replace(self.last)


class Queue:
    """The trials of one study.

    What a worker tells of its trial raises LeaseLost where the trial is not its own any more.

    Attributes:
        study: Optuna's study.
        retries: how many workers one entry may lose before it counts as failed.
        study_id: what tells this study from others of its name.
        lock: held while a trial is claimed and its values are suggested. Optuna's storages may be
            used by several threads; a study's sampler and pruner may not: they keep state between
            calls (ours the trial whose numbers it draws, Hyperband its brackets), so two threads at
            a time would mix their trials up.
    """

    def __init__(self, study: optuna.Study, storage: BaseStorage, *, retries: int) -> None:
        self.study = study
        self.retries = retries
        self.study_id = str(study.user_attrs.get(STUDY, ""))
        self.lock = Lock()
        self._storage = storage
        self._study_id = storage.get_study_id_from_name(study.study_name)

    def trials(self, *states: TrialState) -> list[FrozenTrial]:
        """Optuna's trials in these states (default: all), as they are in the storage now."""
        return self._storage.get_all_trials(self._study_id, deepcopy=False, states=states or None)

    def entries(self) -> list[Entry]:
        """Every trial with its attempts, by number."""
        return entries(self.trials())

    def fill(self, points: Iterable[Mapping[str, Any]]) -> None:
        """Put waiting trials into the queue until there is one for each point.

        A point is the values that are fixed, by key; an empty one is left to the sampler. Where
        there are fewer points than before, trials beyond them that nobody has begun are dropped.
        """
        wanted = list(points)
        by_place = {
            trial.user_attrs[ENTRY]: trial
            for trial in self.trials()
            if ENTRY in trial.user_attrs and SURPLUS not in trial.user_attrs
        }
        for place, point in enumerate(wanted):
            if place not in by_place:
                self.study.enqueue_trial(dict(point), user_attrs={ENTRY: place})
        for place, trial in by_place.items():
            if place >= len(wanted) and trial.state == TrialState.WAITING:
                self._drop(trial._trial_id)

    def claim(self, lease: Lease) -> Trial | None:
        """A waiting trial, now running under this lease, or None where none waits."""
        while self.trials(TrialState.WAITING):
            trial = self.study.ask()
            # Another worker may have taken the last one between the two lines above; and of two
            # replacements for one attempt only the first is run.
            if self._is_surplus(trial.number, trial.user_attrs):
                self._drop(trial._trial_id)
                continue
            try:
                self.beat(trial.number, lease)
            except LeaseLost:
                continue
            return trial
        return None

    def beat(self, number: int, lease: Lease) -> None:
        """Say that a running trial's worker is alive."""
        with lease_lost(number):
            self._storage.set_trial_system_attr(self._id(number), LEASE, lease.as_json())

    def note(self, number: int, attributes: Mapping[str, Any]) -> None:
        """Write user attributes of a running trial."""
        with lease_lost(number):
            for key, value in attributes.items():
                self._storage.set_trial_user_attr(self._id(number), key, value)

    def is_pruned_at(self, trial: Trial, value: float, step: int) -> bool:
        """Report an intermediate value; whether the pruner gives the trial up."""
        with lease_lost(trial.number):
            trial.report(value, step)
        with self.lock:
            return trial.should_prune()

    def finish(self, number: int, state: TrialState, values: Sequence[float] | None = None) -> None:
        """End a trial for good."""
        with lease_lost(number):
            self._storage.set_trial_state_values(self._id(number), state, values)

    def has_ended(self, number: int, state: TrialState) -> bool:
        """Whether a trial's own worker ended it so; one that was lost has ended otherwise."""
        ended = self.trials(state)
        return any(trial.number == number and LOST not in trial.user_attrs for trial in ended)

    def requeue(self, trial: FrozenTrial, why: str) -> bool:
        """Put a running trial into the queue again; whether it was this call that did it.

        `why` is `stopped`, or what became of the worker, which counts as a loss.
        """
        if self._is_surplus(trial.number, trial.user_attrs):
            return self._drop(trial._trial_id)
        losses = _losses(trial.user_attrs) + (why != STOPPED)
        # Before FAIL, so that whoever finds the trial failed knows that it was lost. Several may
        # write this; they write the same.
        attributes: dict[str, Any] = {LOST: why}
        if losses > self.retries:
            attributes[REASON] = f"{why}; so ended {losses} attempts at it"
        if not self._end(trial._trial_id, attributes):
            return False
        self.repair()
        return True

    def repair(self) -> None:
        """Put replacements of lost trials into the queue, also where their finder died."""
        trials = self.trials()
        replaced = {trial.user_attrs.get(RETRY_OF) for trial in trials}
        for trial in trials:
            if _to_replace(trial) and trial.number not in replaced:
                losses = _losses(trial.user_attrs) + (trial.user_attrs[LOST] != STOPPED)
                self._replace(trial, losses)

    def retry_failed(self) -> int:
        """Put every failed trial into the queue again; how many there were."""
        failed = [
            entry.last
            for entry in self.entries()
            if entry.finished and entry.last.state == TrialState.FAIL
        ]
        for trial in failed:
            self._replace(trial, 0)
        return len(failed)

    def _replace(self, trial: FrozenTrial, losses: int) -> None:
        root = trial.user_attrs.get(ROOT, trial.number)
        # A worker may have died before it had asked for every value of a trial.
        params = {**trial.system_attrs.get("fixed_params", {}), **trial.params}
        self.study.enqueue_trial(
            params, user_attrs={ROOT: root, RETRY_OF: trial.number, LOSSES: losses}
        )

    def _is_surplus(self, number: int, attributes: Mapping[str, Any]) -> bool:
        """Whether a trial is nobody's: made by a late claim, or a second replacement."""
        if SURPLUS in attributes:
            return True
        if RETRY_OF not in attributes:
            return ENTRY not in attributes
        return any(
            trial.number < number and trial.user_attrs.get(RETRY_OF) == attributes[RETRY_OF]
            for trial in self.trials()
        )

    def _drop(self, trial_id: int) -> bool:
        """End a trial that is nobody's."""
        return self._end(trial_id, {SURPLUS: True})

    def _end(self, trial_id: int, attributes: Mapping[str, Any]) -> bool:
        """Tell a trial FAIL; whether it was this call that did it."""
        try:
            for key, value in attributes.items():
                self._storage.set_trial_user_attr(trial_id, key, value)
            self._storage.set_trial_state_values(trial_id, TrialState.FAIL)
        except UpdateFinishedTrialError:
            return False
        return True

    def _id(self, number: int) -> int:
        return self._storage.get_trial_id_from_study_id_trial_number(self._study_id, number)


@contextmanager
def lease_lost(number: int) -> Iterator[None]:
    """Raise LeaseLost where a trial cannot be told anything more, because it has ended."""
    try:
        yield
    except UpdateFinishedTrialError:
        raise LeaseLost(f"trial {number}") from None


def entries(trials: Iterable[FrozenTrial]) -> list[Entry]:
    """Group attempts by the trial that they are attempts at; surplus ones are nobody's."""
    attempts: dict[int, list[FrozenTrial]] = {}
    replaced: set[int] = set()
    for trial in trials:
        attributes = trial.user_attrs
        if SURPLUS in attributes:
            continue
        if ENTRY in attributes:
            attempts[trial.number] = [trial]
        elif attributes.get(RETRY_OF) not in {None, *replaced} and attributes[ROOT] in attempts:
            replaced.add(attributes[RETRY_OF])
            attempts[attributes[ROOT]].append(trial)
    return [Entry(number, tuple(trials)) for number, trials in sorted(attempts.items())]


def stale_trials(
    trials: Iterable[FrozenTrial], monitor: HeartbeatMonitor
) -> list[tuple[FrozenTrial, str]]:
    """The running trials whose worker is gone, each with what became of it."""
    monitor.begin()
    stale = []
    for trial in trials:
        if trial.state == TrialState.RUNNING:
            why = monitor.dead_reason(trial.number, trial.system_attrs.get(LEASE))
            if why is not None:
                stale.append((trial, why))
    return stale


def _to_replace(trial: FrozenTrial) -> bool:
    """Whether an attempt was lost and nothing else is known of it."""
    attributes = trial.user_attrs
    lost = LOST in attributes and REASON not in attributes and SURPLUS not in attributes
    return lost and trial.state == TrialState.FAIL


def _losses(attributes: Mapping[str, Any]) -> int:
    """Workers that earlier attempts have lost; set when an attempt is put into the queue."""
    return int(attributes.get(LOSSES, 0))
