"""Trackers: programs that show a training's numbers as they come, beside metrics.jsonl.

No result depends on one. Each writes below the phase's own folder, and its package is an extra that
is imported only where an experiment names it.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from utils.validation import check_installed

# Of a server that does not answer, before the first step and after the last one.
_WANDB_WAIT_S = 30


class Tracker(Protocol):
    """What takes a training's numbers."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """The numbers of a step, by names like `train/loss_nats`."""

    def close(self) -> None:
        """Write out what is held back."""


@dataclass(frozen=True)
class TrackedPhase:
    """What a tracker is told of a phase: its folder, a name and an id that a resume has again.

    `settings` is its experiment, as it is kept in files.
    """

    folder: Path
    name: str
    run_id: str
    settings: Mapping[str, Any]


# Given the step after which it goes on; what was logged of later ones is void.
Opener = Callable[[int], Tracker]


class TensorBoard:
    """Event files in the folder `tensorboard`."""

    def __init__(self, phase: TrackedPhase, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # Without purge_step a resume would draw the steps after the checkpoint twice.
        self._writer: Any = SummaryWriter(str(phase.folder / "tensorboard"), purge_step=step + 1)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """A point of each curve."""
        for tag, value in values.items():
            self._writer.add_scalar(tag, value, step)

    def close(self) -> None:
        """Write what the writer's own thread still holds back."""
        self._writer.close()


class Wandb:
    """A run of Weights & Biases in the folder `wandb`.

    No failure of its own ends a training: it says so once and is silent from then on.
    """

    def __init__(self, phase: TrackedPhase, step: int) -> None:
        import wandb

        mailbox = getattr(getattr(wandb, "sdk", None), "mailbox", None)
        gone = (
            getattr(mailbox, name, None) for name in ("MailboxClosedError", "HandleAbandonedError")
        )
        self._failures: tuple[type[Exception], ...] = (wandb.Error, OSError, *filter(None, gone))
        self._run: Any = None
        try:
            self._run = _wandb_run(phase, os.environ.get("WANDB_MODE") or "offline")
        except self._failures as error:
            _warn(f"kept in {phase.folder / 'wandb'} (wandb sync uploads it): {error}")
            # Its own process still counts the run as begun, and would refuse its id.
            wandb.teardown()
            self._run = _wandb_run(phase, "offline")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """A row of its history; of one step it takes several."""
        self._unless_it_fails(lambda run: run.log(dict(values), step=step))

    def close(self) -> None:
        """Hand over what is not uploaded yet, for as long as the server takes it."""
        self._unless_it_fails(lambda run: run.finish())

    def _unless_it_fails(self, use: Callable[[Any], None]) -> None:
        if self._run is None:
            return
        try:
            use(self._run)
        except self._failures as error:
            self._run = None
            _warn(f"nothing more is logged there: {error}")


def _wandb_run(phase: TrackedPhase, mode: str) -> Any:
    import wandb

    wanted = {
        "console": "off",  # the screen is ours, and the progress bar is no log
        "silent": True,
        "init_timeout": _WANDB_WAIT_S,
        "login_timeout": _WANDB_WAIT_S,
        "finish_timeout": _WANDB_WAIT_S,
    }
    known = wandb.Settings.model_fields
    return wandb.init(
        project=os.environ.get("WANDB_PROJECT") or "parnas",
        id=phase.run_id,
        name=phase.name,
        dir=str(phase.folder),
        config=dict(phase.settings),
        mode=mode,
        resume="allow",
        settings=wandb.Settings(**{key: value for key, value in wanted.items() if key in known}),
    )


def _warn(words: str) -> None:
    print(f"warning: wandb: {' '.join(words.split())}", file=sys.stderr, flush=True)


TRACKERS: Mapping[str, Callable[[TrackedPhase], Opener]] = {
    "tensorboard": lambda phase: partial(TensorBoard, phase),
    "wandb": lambda phase: partial(Wandb, phase),
}


def check_trackers(names: Sequence[str]) -> None:
    """Raise ValueError where a package of a tracker is missing."""
    for name in names:
        check_installed("run.trackers", name, (name,))
