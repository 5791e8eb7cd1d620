"""A worker: claims trials, runs them, says that it is alive, finds others that are not."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from optuna.trial import Trial, TrialState

from hpo.heartbeat import HeartbeatMonitor, Lease, now_s, own_lease
from hpo.queue import ROOT, STOPPED, LeaseLost, Queue, stale_trials
from hpo.retry import retry_transient, try_once
from pipeline.sweep.attempt import Attempt, Ended, ResourceSlice
from pipeline.sweep.plan import Sweep
from pipeline.sweep.process import TrialProcess
from pipeline.sweep.progress import worded
from pipeline.sweep.results import clean
from pipeline.sweep.trial import Interrupted
from training.signals import Stopped, StopRequest

T = TypeVar("T")

_IDLE_S = 1.0
_SIGN = 1 / 9  # of a lease
_PATIENCE_S = 600.0


@dataclass
class Worker:
    """One worker of a sweep.

    Attributes:
        sweep: the sweep.
        queue: its trials.
        share: this worker's part of the machine.
        stop: whether a signal came.
        parent: the process that started it and with which it ends, if any.
        clock: seconds, by which leases are judged.
    """

    sweep: Sweep
    queue: Queue
    share: ResourceSlice
    stop: StopRequest
    parent: int | None = None
    clock: Callable[[], float] = now_s
    _lease: Lease = field(default_factory=own_lease)
    _monitor: HeartbeatMonitor = field(init=False)
    _signed_s: float = 0.0

    def __post_init__(self) -> None:
        self._monitor = HeartbeatMonitor(self.sweep.config.lease_s, self.clock)

    def run(self) -> None:
        """Run trials until none waits and none runs.

        Raises:
            Stopped: a signal came; the trial at hand is in the queue again.
        """
        while True:
            if self._stopping():
                raise Stopped(self.stop.number or 15)
            self._retry_transient(self._look_around)
            trial = self._retry_transient(self._claim)
            if trial is not None:
                self._run_trial(trial)
            elif self._retry_transient(self._all_finished):
                return
            else:
                time.sleep(_IDLE_S)

    def _run_trial(self, trial: Trial) -> None:
        number = trial.number
        root = trial.user_attrs.get(ROOT, number)
        print(f"trial {root}: begins{' again' * (root != number)}", flush=True)
        attempt = Attempt(
            trial,
            self.sweep,
            self.queue,
            self.share,
            alive=lambda process: self._alive(number, process),
            again=lambda: self._retry_transient(lambda: self._beat(number)),
            retry=self._retry_transient,
        )
        try:
            ended = attempt.run()
            self._retry_transient(lambda: self._end(number, ended))
            outcome = ended.state.name.lower()
            if ended.values:
                outcome = worded(self.sweep, ended.values)
            print(f"trial {root}: {outcome}", flush=True)
        except LeaseLost:
            print(f"trial {root}: was given to another worker", flush=True)
        except Interrupted:
            try_once(lambda: self._requeue(number))
        except OSError:
            # The disk or the folder, not the trial: another worker may fare better.
            try_once(lambda: self._requeue(number))
            raise
        self._retry_transient(lambda: clean(self.queue, self.sweep))

    def _claim(self) -> Trial | None:
        self._lease = self._lease.next()
        self._signed_s = self.clock()
        return self.queue.claim(self._lease)

    def _all_finished(self) -> bool:
        return all(entry.finished for entry in self.queue.entries())

    def _alive(self, number: int, process: TrialProcess | None) -> None:
        """Give a sign where one is due; raise Interrupted where this worker must stop."""
        if self._stopping():
            if process is not None:
                process.stop()
            raise Interrupted
        if self.clock() - self._signed_s < _SIGN * self.sweep.config.lease_s:
            return
        if try_once(lambda: self._beat(number)) and process is not None:
            process.beat()
        try_once(self._look_around)

    def _beat(self, number: int) -> None:
        self._signed_s = self.clock()
        self._lease = self._lease.next()
        self.queue.beat(number, self._lease)

    def _end(self, number: int, ended: Ended) -> None:
        self.queue.note(number, ended.attributes)
        self.queue.finish(number, ended.state, ended.values)

    def _requeue(self, number: int) -> None:
        for trial in self.queue.trials(TrialState.RUNNING):
            if trial.number == number:
                self.queue.requeue(trial, STOPPED)

    def _look_around(self) -> None:
        """Put trials of dead workers back into the queue."""
        for trial, why in stale_trials(self.queue.trials(TrialState.RUNNING), self._monitor):
            if self.queue.requeue(trial, why):
                print(f"trial {trial.number}: {why}", flush=True)
        self.queue.repair()

    def _stopping(self) -> bool:
        """Whether a signal came, or the process that started this one is gone."""
        return self.stop.number is not None or (
            self.parent is not None and os.getppid() != self.parent
        )

    def _retry_transient(self, action: Callable[[], T]) -> T:
        return retry_transient(action, limit_s=_PATIENCE_S, wait=self._rest)

    def _rest(self) -> None:
        if self._stopping():
            raise Stopped(self.stop.number or 15)
        time.sleep(_IDLE_S)
