"""The parent of a sweep: starts workers, shows trials as they end, waits for all of them."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hpo.queue import Queue
from hpo.retry import retry_transient, try_once
from pipeline.sweep.child import PROGRAM
from pipeline.sweep.plan import Sweep
from pipeline.sweep.progress import Progress
from pipeline.sweep.trial import last_words, signal_name
from training.signals import Stopped, StopRequest

# The storage of a worker that another process starts: its file lacks the password, and a command
# line is seen by all.
STORAGE = "PARNAS_STORAGE"
_POLL_S = 0.5
_SHOW_S = 2.0
_LEFT_S = 120.0
_PATIENCE_S = 600.0
_GRACE_S = 40.0
# So many workers may end badly without a trial that ended meanwhile, before the sweep gives up.
_MOST_DEATHS = 5


@dataclass
class Parent:
    """Runs workers on this machine until every trial of the sweep has ended.

    Attributes:
        sweep: the sweep.
        queue: its trials.
        arguments: with which a worker is started.
        workers: how many share this machine.
        stop: whether a signal came.
        name: what the names of their logs begin with.
    """

    sweep: Sweep
    queue: Queue
    arguments: Sequence[str]
    workers: int
    stop: StopRequest
    name: str = "worker"
    _running: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    _deaths: int = 0
    _ended: int = 0

    def run(self) -> None:
        """Wait for the end.

        Raises:
            Stopped: a signal came; workers and trials have saved their state and ended.
            ValueError: workers end badly again and again.
        """
        progress = Progress(self.sweep)
        shown_s = 0.0
        left_s = time.monotonic()
        self._retry_transient(lambda: progress.pass_over(self.queue))
        try:
            for place in range(self.workers):
                self._start(place)
            while self._check():
                if self.stop.number is not None:
                    raise Stopped(self.stop.number)
                if time.monotonic() - shown_s > _SHOW_S:
                    shown_s = time.monotonic()
                    self._retry_transient(lambda: progress.show(self.queue))
                if time.monotonic() - left_s > _LEFT_S:
                    left_s = time.monotonic()
                    self._retry_transient(lambda: progress.show_left(self.queue))
                time.sleep(_POLL_S)
            self._retry_transient(lambda: progress.show(self.queue))
        finally:
            self._end()

    def _retry_transient(self, action: Callable[[], None]) -> None:
        retry_transient(action, limit_s=_PATIENCE_S, wait=self._rest)

    def _rest(self) -> None:
        if self.stop.number is not None:
            raise Stopped(self.stop.number)
        time.sleep(_POLL_S)

    def _start(self, place: int) -> None:
        self.sweep.paths.workers.mkdir(parents=True, exist_ok=True)
        with self._log(place).open("ab") as log:
            self._running[place] = subprocess.Popen(
                [
                    sys.executable,
                    str(PROGRAM / "sweep.py"),
                    *self.arguments,
                    "--worker",
                    "--share",
                    f"{place}/{self.workers}",
                    "--parent",
                    str(os.getpid()),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, STORAGE: self.sweep.config.storage},
                start_new_session=True,
            )

    def _log(self, place: int) -> Path:
        return self.sweep.paths.workers / f"{self.name}-{place}.log"

    def _check(self) -> bool:
        """Start workers anew that died; whether any is at work."""
        for place, process in list(self._running.items()):
            code = process.poll()
            if code is None:
                continue
            del self._running[place]
            if code:
                self._replace(place, code)
        return bool(self._running)

    def _replace(self, place: int, code: int) -> None:
        before = self._ended
        try_once(self._count_ended)
        self._deaths = self._deaths + 1 if self._ended == before else 1
        log = self._log(place)
        how = signal_name(-code) if code < 0 else f"exit code {code}"
        if self._deaths > _MOST_DEATHS:
            raise ValueError(
                f"{self._deaths} workers ended badly, the last with {how}: {last_words(log)}"
            )
        print(f"worker {place} ended with {how} (see {log}); another takes its place", flush=True)
        self._start(place)

    def _count_ended(self) -> None:
        self._ended = sum(entry.finished for entry in self.queue.entries())

    def _end(self) -> None:
        """Ask all workers to end, and wait until their trials have saved their state."""
        for process in self._running.values():
            if process.poll() is None:
                process.terminate()
        until = time.monotonic() + _GRACE_S
        for process in self._running.values():
            try:
                process.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
