"""Trackers: programs that show a training's numbers as they come, beside metrics.jsonl.

No result depends on one. Each writes below the phase's own folder, and its package is an extra that
is imported only where an experiment names it.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from utils.validation import check_installed


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
    """A run of Weights & Biases in the folder `wandb`; offline unless WANDB_MODE says otherwise."""

    def __init__(self, phase: TrackedPhase, step: int) -> None:
        import wandb

        try:
            self._run: Any = wandb.init(
                project=os.environ.get("WANDB_PROJECT") or "parnas",
                id=phase.run_id,
                name=phase.name,
                dir=str(phase.folder),
                config=dict(phase.settings),
                mode=os.environ.get("WANDB_MODE") or "offline",
                resume="allow",
                # The screen is ours, and the progress bar is no log. Without its server a training
                # would wait for the end of an upload, and come to no result.
                settings=wandb.Settings(console="off", silent=True, finish_timeout=300),
            )
        except wandb.Error as error:
            raise ValueError(
                f"run.trackers: wandb: {error}; with WANDB_MODE=offline nothing is sent"
            ) from error

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """A row of its history; of one step it takes several."""
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        """Hand over what is not uploaded yet."""
        self._run.finish()


TRACKERS: Mapping[str, Callable[[TrackedPhase, int], Tracker]] = {
    "tensorboard": TensorBoard,
    "wandb": Wandb,
}


def check_trackers(names: Sequence[str]) -> None:
    """Raise ValueError where a package of a tracker is missing."""
    for name in names:
        check_installed("run.trackers", (name,))
