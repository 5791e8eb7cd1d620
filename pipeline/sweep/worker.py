"""A worker: claims trials, runs them, says that it is alive, finds others that are not."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from optuna.trial import Trial, TrialState

from hpo.heartbeat import Lease, Watch, now_s, own_lease
from hpo.queue import ROOT, STOPPED, Queue, Taken, dead
from hpo.retry import tried, until_there
from pipeline.sweep.attempt import Attempt, Ended, Share
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
    share: Share
    stop: StopRequest
    parent: int | None = None
    clock: Callable[[], float] = now_s
    _lease: Lease = field(default_factory=own_lease)
    _watch: Watch = field(init=False)
    _signed_s: float = 0.0

    def __post_init__(self) -> None:
        self._watch = Watch(self.sweep.config.lease_s, self.clock)

    def work(self) -> None:
        """Run trials until none waits and none runs.

        Raises:
            Stopped: a signal came; the trial at hand is in the queue again.
        """
        while True:
            if self._stopping():
                raise Stopped(self.stop.number or 15)
            self._until_there(self._look_around)
            trial = self._until_there(self._claim)
            if trial is not None:
                self._run(trial)
            elif self._until_there(self._all_finished):
                return
            else:
                time.sleep(_IDLE_S)

    def _run(self, trial: Trial) -> None:
        number = trial.number
        root = trial.user_attrs.get(ROOT, number)
        print(f"trial {root}: begins{' again' * (root != number)}", flush=True)
        attempt = Attempt(
            trial,
            self.sweep,
            self.queue,
            self.share,
            alive=lambda process: self._alive(number, process),
            again=lambda: self._until_there(lambda: self._sign(number)),
            patient=self._until_there,
        )
        try:
            ended = attempt.run()
            self._until_there(lambda: self._end(number, ended))
            objectives = self.sweep.config.objectives
            said = worded(objectives, ended.values) if ended.values else ended.state.name.lower()
            print(f"trial {root}: {said}", flush=True)
        except Taken:
            print(f"trial {root}: was given to another worker", flush=True)
        except Interrupted:
            tried(lambda: self._give_back(number))
        except OSError:
            # The disk or the folder, not the trial: another worker may fare better.
            tried(lambda: self._give_back(number))
            raise
        self._until_there(lambda: clean(self.queue, self.sweep))

    def _claim(self) -> Trial | None:
        self._lease = self._lease.next()
        self._signed_s = self.clock()
        return self.queue.claim(self._lease)

    def _all_finished(self) -> bool:
        return all(entry.finished for entry in self.queue.entries())

    def _alive(self, number: int, process: TrialProcess | None) -> None:
        """Give a sign where one is due; stop where this worker must.

        Raises:
            Interrupted: it must stop.
            Taken: the trial is another worker's.
        """
        if self._stopping():
            if process is not None:
                process.stop()
            raise Interrupted
        if self.clock() - self._signed_s < _SIGN * self.sweep.config.lease_s:
            return
        if tried(lambda: self._sign(number)) and process is not None:
            process.sign()
        tried(self._look_around)

    def _sign(self, number: int) -> None:
        self._signed_s = self.clock()
        self._lease = self._lease.next()
        self.queue.sign(number, self._lease)

    def _end(self, number: int, ended: Ended) -> None:
        self.queue.note(number, ended.attributes)
        self.queue.finish(number, ended.state, ended.values)

    def _give_back(self, number: int) -> None:
        for trial in self.queue.trials(TrialState.RUNNING):
            if trial.number == number:
                self.queue.give_back(trial, STOPPED)

    def _look_around(self) -> None:
        """Put trials of dead workers back into the queue."""
        for trial, why in dead(self.queue.trials(TrialState.RUNNING), self._watch):
            if self.queue.give_back(trial, why):
                print(f"trial {trial.number}: {why}", flush=True)
        self.queue.mend()

    def _stopping(self) -> bool:
        """Whether a signal came, or the process that started this one is gone."""
        return self.stop.number is not None or (
            self.parent is not None and os.getppid() != self.parent
        )

    def _until_there(self, action: Callable[[], T]) -> T:
        return until_there(action, limit_s=_PATIENCE_S, wait=self._rest)

    def _rest(self) -> None:
        if self._stopping():
            raise Stopped(self.stop.number or 15)
        time.sleep(_IDLE_S)
