"""Ctrl-C and SIGTERM: finish the step, save, say how to go on."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stopped(Exception):
    """The run was stopped by a signal after a checkpoint."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


class StopRequest:
    """Remembers a signal until the step is done; a second one interrupts at once."""

    def __init__(self) -> None:
        self.number: int | None = None

    def _remember(self, number: int, frame: FrameType | None) -> None:
        if self.number is not None:
            raise KeyboardInterrupt
        self.number = number

    @contextmanager
    def listening(self) -> Iterator["StopRequest"]:
        """Catch SIGINT and SIGTERM inside the block."""
        signals = (signal.SIGINT, signal.SIGTERM)
        before = [signal.signal(number, self._remember) for number in signals]
        try:
            yield self
        finally:
            for number, handler in zip(signals, before, strict=True):
                signal.signal(number, handler)
