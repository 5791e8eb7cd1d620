"""One trial's process as its worker sees it: start, signs of life, end."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from pipeline.sweep.child import PROGRAM

_STACKS_S = 5.0
_GRACE_S = 15.0


class FolderBusy(Exception):
    """Another process still trains in the trial's folder."""


class TrialProcess:
    """A process that runs scripts for one run directory.

    It holds a lock on the trial's folder for as long as it lives, also past its worker's death.

    Attributes:
        log: where everything that it prints goes.
    """

    def __init__(
        self,
        folder: Path,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        *,
        wait_s: float,
        meanwhile: Callable[[], None],
    ) -> None:
        """Start it.

        Args:
            folder: the run directory.
            arguments: of `pipeline.sweep.child`.
            environment: what is added to this process's.
            wait_s: how long an earlier process may still hold the folder.
            meanwhile: called several times a second while it does.

        Raises:
            FolderBusy: it held it for longer.
            OSError: the folder cannot be written.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / "trial.log"
        with (folder / "trial.lock").open("a") as lock, self.log.open("ab") as log:
            _take(lock, wait_s, meanwhile)
            path = os.pathsep.join([str(PROGRAM), *filter(None, [os.environ.get("PYTHONPATH")])])
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "pipeline.sweep.child", *arguments],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"},
                pass_fds=(lock.fileno(),),
                start_new_session=True,
            )
        assert self._process.stdin is not None
        self._pipe = self._process.stdin.fileno()
        # A process that hangs reads nothing, and the pipe must not make its worker wait.
        os.set_blocking(self._pipe, False)

    def poll(self) -> int | None:
        """The exit code, or None while it runs."""
        return self._process.poll()

    def beat(self) -> None:
        """Say that the worker is alive."""
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


def _take(lock: IO[str], wait_s: float, meanwhile: Callable[[], None]) -> None:
    until = time.monotonic() + wait_s
    while True:
        try:
            # Not lockf: this one goes over to the child with the file.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > until:
                raise FolderBusy(lock.name) from None
            meanwhile()
            time.sleep(0.2)
