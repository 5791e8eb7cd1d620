"""How a training may end before its last step; without torch, so that any script can name it."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from training.distributed import Ranks


class Stopped(Exception):
    """The run was stopped by a signal after a checkpoint."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


class Diverged(Exception):
    """The loss is not a number or beyond any sense, or something that is trained is not finite."""


class Lost(Exception):
    """Another process of the run is gone, or does not answer."""


class StopRequest:
    """Remembers SIGINT or SIGTERM until the step is done; a second one interrupts at once.

    One that listens inside of another knows what that one heard before, and tells it what it hears:
    a trial of a sweep that is asked to end while it prepares would else train its search whole.
    """

    def __init__(self, ranks: "Ranks | None" = None) -> None:
        self.number: int | None = None
        self._outer: StopRequest | None = None
        self._ranks = ranks
        self._answer: Callable[[], int] = lambda: 0

    def agreed(self) -> int | None:
        """The signal of any rank, for all of them at the same step; to be called once a step.

        What is asked after one step is answered after the next, so that nobody waits for it.
        """
        if self._ranks is None or self._ranks.world == 1:
            return self.number
        number, self._answer = self._answer(), self._ranks.all_max_async(self.number or 0)
        return number or None

    def _remember(self, number: int, frame: FrameType | None) -> None:
        if self.number is not None:
            raise KeyboardInterrupt
        self.number = number
        if self._outer is not None:
            self._outer.number = number

    @contextmanager
    def listening(self) -> Iterator["StopRequest"]:
        """Catch SIGINT and SIGTERM inside the block."""
        signals = (signal.SIGINT, signal.SIGTERM)
        before = [signal.signal(number, self._remember) for number in signals]
        outer = getattr(before[0], "__self__", None)
        if isinstance(outer, StopRequest):
            self._outer, self.number = outer, self.number or outer.number
        try:
            yield self
            # Nobody leaves while the last question is under way.
            self._answer()
        except Exception:
            if self._ranks is not None and self._ranks.world > 1:
                # The launcher ends all processes when one has ended: first they say why.
                before = [signal.SIG_IGN] * len(signals)
            raise
        finally:
            for number, handler in zip(signals, before, strict=True):
                signal.signal(number, handler)
