"""A process that runs scripts, as its watcher sees it: start, signs of life, end."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from pipeline.processes.child import PROGRAM

_CHILD = (sys.executable, "-P", "-m", "pipeline.processes.child")
_STACKS_S = 5.0
_GRACE_S = 15.0


class FolderBusy(Exception):
    """Another process still trains in the folder."""


class Interrupted(Exception):
    """The watcher was asked to stop; the run's process has saved its state."""


class ScriptProcess:
    """A process that runs scripts for one run directory; `log` has everything that it prints.

    It holds a lock on the folder for as long as it lives, also past its watcher's death.
    """

    def __init__(self, folder: Path, arguments: Sequence[str], watcher: "Watcher") -> None:
        """Start it with arguments of `pipeline.processes.child`.

        Raises:
            FolderBusy: an earlier process has held the folder for longer than the watcher waits.
            Interrupted: the watcher must end.
            OSError: the folder cannot be written.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / "trial.log"
        with (folder / "trial.lock").open("a") as lock, self.log.open("ab") as log:
            _take(lock, watcher)
            path = os.pathsep.join([str(PROGRAM), *filter(None, [os.environ.get("PYTHONPATH")])])
            own = {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
            self._process = subprocess.Popen(
                [*_CHILD, "--alive-s", str(watcher.alive_s), *arguments],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **watcher.environment, **own},
                pass_fds=(lock.fileno(),),
                start_new_session=True,
            )
        assert self._process.stdin is not None
        self._pipe = self._process.stdin.fileno()
        # A process that hangs reads nothing, and the pipe must not make its watcher wait.
        os.set_blocking(self._pipe, False)

    def poll(self) -> int | None:
        """The exit code, or None while it runs."""
        return self._process.poll()

    def beat(self) -> None:
        """Say that the watcher is alive."""
        with suppress(BrokenPipeError, BlockingIOError):
            os.write(self._pipe, b".")

    def stop(self) -> None:
        """Ask it to save a checkpoint and end; end it where it does not."""
        self._send(signal.SIGTERM)
        if not self._ended_within(_GRACE_S):
            self.kill()

    def show_stacks(self) -> None:
        """Make it print where it hangs, then end it."""
        self._send(signal.SIGABRT)
        if not self._ended_within(_STACKS_S):
            self.kill()

    def kill(self) -> None:
        """End it at once, with all that it started."""
        self._send(signal.SIGKILL)
        self._process.wait()

    def _send(self, number: int) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, number)

    def _ended_within(self, limit_s: float) -> bool:
        try:
            self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return False
        return True


@dataclass(kw_only=True)
class Watcher:
    """Who watches a run's process; in a sweep an attempt, which has a lease and a pruner too.

    Attributes:
        is_ending: whether the process must save its state and end, because this one must.
        environment: variables of the process, e.g. its GPU.
        alive_s: the process ends by itself when nobody gave it a sign for so long.
        wait_s: how long the process of a dead watcher may still hold the folder.
    """

    is_ending: Callable[[], bool]
    environment: Mapping[str, str] = field(default_factory=dict)
    alive_s: float = 60.0
    wait_s: float = 75.0

    def check(self, process: "ScriptProcess | None") -> None:
        """Give a sign of life; called several times a second, with the process once there is one.

        Raises:
            Interrupted: where this watcher must end; the process has ended.
        """
        if self.is_ending():
            if process is not None:
                process.stop()
            raise Interrupted
        self.sign(process)

    def sign(self, process: "ScriptProcess | None") -> None:
        """Tell the process that its watcher is alive."""
        if process is not None:
            process.beat()

    def confirm(self) -> None:
        """Return once the run is known to be still this watcher's; called before a second start."""

    def search_wrote(self, metrics: Path) -> None:
        """Hear that the search's file of metrics has changed; what it raises ends the process."""


def _take(lock: IO[str], watcher: Watcher) -> None:
    until = time.monotonic() + watcher.wait_s
    while True:
        try:
            # Not lockf: this one goes over to the child with the file.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > until:
                raise FolderBusy(lock.name) from None
            watcher.check(None)
            time.sleep(0.2)
