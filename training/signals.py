"""Ctrl-C and SIGTERM: finish the step, save, say how to go on."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from training.distributed import ALONE, Ranks


class StopRequest:
    """Remembers a signal until the step is done; a second one interrupts at once."""

    def __init__(self, ranks: Ranks = ALONE) -> None:
        self.number: int | None = None
        self._ranks = ranks
        self._answer: Callable[[], int] = lambda: 0

    def agreed(self) -> int | None:
        """The signal of any rank, for all of them at the same step; to be called once a step.

        What is asked after one step is answered after the next, so that nobody waits for it.
        """
        if self._ranks.world == 1:
            return self.number
        number, self._answer = self._answer(), self._ranks.all_max_async(self.number or 0)
        return number or None

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
            # Nobody leaves while the last question is under way.
            self._answer()
        except Exception:
            if self._ranks.world > 1:
                # The launcher ends all processes when one has ended: first they say why.
                before = [signal.SIG_IGN] * len(signals)
            raise
        finally:
            for number, handler in zip(signals, before, strict=True):
                signal.signal(number, handler)
