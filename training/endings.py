"""How a training may end before its last step; without torch, so that any script can name it."""

import signal


class Stopped(Exception):
    """The run was stopped by a signal after a checkpoint."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


class Diverged(Exception):
    """The loss is not a number or beyond any sense, or something that is trained is not finite."""


class Lost(Exception):
    """Another process of the run is gone, or does not answer."""
