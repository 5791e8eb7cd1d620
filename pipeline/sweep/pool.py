"""The one process of a sweep on a machine: its threads claim trials and watch their processes."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event, Lock, Thread
from typing import TypeVar

from optuna.trial import TrialState

from hpo.heartbeat import HeartbeatMonitor, now_s, own_lease
from hpo.queue import ROOT, STOPPED, LeaseLost, Queue, lease_lost, stale_trials
from hpo.retry import retry_transient, try_once
from pipeline.processes.script_process import Interrupted
from pipeline.sweep.attempt import Attempt, AttemptResult, ResourceSlice
from pipeline.sweep.plan import Sweep
from pipeline.sweep.progress import Progress
from pipeline.sweep.results import clean
from training.endings import Stopped
from training.signals import StopRequest
from utils.files import words_of
from utils.screen import announce

T = TypeVar("T")

_POLL_S = 0.5
_LOOK_S = 2.0
_LEFT_S = 120.0
_IDLE_S = 1.0
# After an error of the system: a disk may have room again.
_PAUSE_S = 5.0
# Longer than a trial's process has to save its state.
_GRACE_S = 40.0
# So many errors of the system may come without a trial that ended meanwhile, before all end.
_MOST_ERRORS = 5


@dataclass
class Pool:
    """Runs trials on this machine, so many at a time, until every trial of the sweep has ended.

    Each worker is a thread that claims a trial and watches its process. The main thread shows
    what has ended and puts trials of dead pools, here or elsewhere, back into the queue. Leases are
    judged by `clock`, in seconds.
    """

    sweep: Sweep
    queue: Queue
    workers: int
    stop: StopRequest
    clock: Callable[[], float] = now_s
    _ending: Event = field(default_factory=Event)
    _error: BaseException | None = None
    _system_errors: int = 0
    _counting: Lock = field(default_factory=Lock)

    def run(self) -> None:
        """Wait for the end.

        Raises:
            Stopped: a signal came; the trials have saved their state and are in the queue again.
            ValueError: errors of the system, such as a full disk, come again and again.
            Exception: what ended a worker, after the others have saved their state.
        """
        progress = Progress(self.sweep)
        # Daemons: where a storage never answers, or at a second Ctrl-C, this process ends without
        # them; the trials' processes see their pipe closed and save their state.
        threads = [
            Thread(target=self._work, args=(ResourceSlice(place, self.workers),), daemon=True)
            for place in range(self.workers)
        ]
        try:
            self._retry(lambda: progress.pass_over(self.queue))
            for thread in threads:
                thread.start()
            self._look_on(threads, progress)
        except Interrupted:
            pass  # why is said below
        finally:
            self._ending.set()
            until = time.monotonic() + _GRACE_S
            for thread in filter(Thread.is_alive, threads):
                thread.join(max(0.0, until - time.monotonic()))
        if self._error is not None:
            raise self._error
        if self.stop.number is not None:
            raise Stopped(self.stop.number)

    def _look_on(self, threads: list[Thread], progress: Progress) -> None:
        monitor = HeartbeatMonitor(self.sweep.config.lease_s, self.clock)
        looked_s, left_s = -_LOOK_S, time.monotonic()
        while any(thread.is_alive() for thread in threads):
            if time.monotonic() - looked_s > _LOOK_S:
                looked_s = time.monotonic()
                try:
                    self._retry(lambda: self._requeue_stale(monitor))
                except OSError as error:
                    self._bear(error)
                self._retry(lambda: progress.show(self.queue))
            if time.monotonic() - left_s > _LEFT_S:
                left_s = time.monotonic()
                self._retry(lambda: progress.show_left(self.queue))
            self._wait(_POLL_S)
        self._retry(lambda: progress.show(self.queue))

    def _requeue_stale(self, monitor: HeartbeatMonitor) -> None:
        """Put the trials of dead pools back into the queue; `Progress` says so."""
        for trial, why in stale_trials(self.queue.trials(TrialState.RUNNING), monitor):
            self.queue.requeue(trial, why)
        self.queue.repair()

    def _work(self, share: ResourceSlice) -> None:
        """Run trials until none waits and none runs: a worker's thread."""
        try:
            while not self._is_ending():
                try:
                    if self._run_next(share):
                        continue
                    if self._retry(lambda: all(entry.finished for entry in self.queue.entries())):
                        return
                    self._rest()
                except OSError as error:
                    # A disk or a folder, not the trial: another worker may fare better.
                    self._bear(error)
                    self._wait(_PAUSE_S)
        except Interrupted:
            pass
        # What ends a thread would vanish with it; the main thread raises it.
        except BaseException as error:
            self._error = self._error or error
            self._ending.set()

    def _run_next(self, share: ResourceSlice) -> bool:
        """Run a trial that waits to its end; whether there was one."""
        trial, lease = None, own_lease()
        try:
            # Both under one lock, or the sampler would draw for another trial in between.
            with self.queue.lock:
                trial = self._retry(lambda: self.queue.claim(lease))
                if trial is None:
                    return False
                claimed = trial
                with lease_lost(trial.number):
                    values = self._retry(lambda: self.sweep.space.suggest(claimed))
            attempt = Attempt(
                trial,
                values,
                self.sweep,
                self.queue,
                share,
                lease,
                is_ending=self._is_ending,
                wait=self._rest,
                clock=self.clock,
            )
            result = attempt.run()
            self._retry(lambda: self._finish(claimed.number, result))
        except LeaseLost:
            assert trial is not None
            root = trial.user_attrs.get(ROOT, trial.number)
            announce(f"trial {root}: was given to another worker")
        except (Interrupted, OSError):
            if trial is not None:
                number = trial.number
                try_once(lambda: self._give_back(number))
            raise
        self._retry(lambda: clean(self.queue, self.sweep))
        return True

    def _finish(self, number: int, result: AttemptResult) -> None:
        try:
            self.queue.note(number, result.attributes)
            self.queue.finish(number, result.state, result.values)
        except LeaseLost:
            # A try before this one may have been done, and its answer got lost.
            if not self.queue.has_ended(number, result.state):
                raise
        self._system_errors = 0

    def _give_back(self, number: int) -> None:
        for trial in self.queue.trials(TrialState.RUNNING):
            if trial.number == number:
                self.queue.requeue(trial, STOPPED)

    def _bear(self, error: OSError) -> None:
        """Say an error of the system, a trial's folder that is away included; not too many."""
        with self._counting:
            self._system_errors += 1
            count = self._system_errors
        if count > _MOST_ERRORS:
            raise ValueError(
                f"{count} errors without a trial that ended in between, the last: {words_of(error)}"
            )
        announce(f"{words_of(error)}; what could not be done is tried again")

    def _is_ending(self) -> bool:
        return self._ending.is_set() or self.stop.number is not None

    def _retry(self, action: Callable[[], T]) -> T:
        return retry_transient(action, self._rest)

    def _rest(self) -> None:
        self._wait(_IDLE_S)

    def _wait(self, seconds: float) -> None:
        if self._is_ending():
            raise Interrupted
        self._ending.wait(seconds)
