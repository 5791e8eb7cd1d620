"""Which checkpoint a run goes on from: the last one, or the one before where that is unusable."""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from training.checkpoint import Checkpoint, read_checkpoint, save_checkpoint
from training.files import words_of
from training.ranks import ALONE, Ranks
from training.state import TrainState
from training.tensor_file import read_header

LAST, PREVIOUS, REFUSED = (
    "last.safetensors",
    "previous.safetensors",
    "last.refused.safetensors",
)


@dataclass(frozen=True)
class Found:
    """The checkpoint to go on from, and why it is not the last one where it is not."""

    checkpoint: Checkpoint
    refused: str | None


@dataclass(frozen=True)
class Checkpoints:
    """The last two checkpoints of a run; at any moment one of them is whole.

    Attributes:
        folder: where they lie.
        identity: whose they are.
        steps: how many steps the run takes.
        ranks: the first one writes, all read.
    """

    folder: Path
    identity: str
    steps: int
    ranks: Ranks = ALONE

    def save(self, state: TrainState) -> None:
        """Write the last one; what was the last one becomes the previous one.

        Raises:
            OSError: the disk is full or the folder not writable; both stay as they were.
        """
        save_checkpoint(
            self.folder / LAST, state, self.identity, self.folder / PREVIOUS, self.ranks
        )

    def find(self, state: TrainState) -> Found | None:
        """The newest usable one; None where there is none at all. Nothing is changed.

        Raises:
            ValueError: there are some, but none that can be used, or the ranks see different ones.
        """
        found = self._find(state)
        if not self.ranks.agree(0 if found is None else found.checkpoint.step):
            raise ValueError(
                f"{self.folder}: the processes found different checkpoints there; all machines "
                "must see the same run folder"
            )
        return found

    def newest(self) -> str:
        """Which whole checkpoint is the newest, in words, for a run that has to end."""
        for path in (self.folder / LAST, self.folder / PREVIOUS):
            # The process that writes them renames one to the other while this one looks.
            with suppress(OSError, ValueError):
                step = read_header(path)["step"]
                return f"the last whole checkpoint is that of step {step} ({path})"
        return "there is no checkpoint yet, so it begins again at step 0"

    def _find(self, state: TrainState) -> Found | None:
        paths = [self.folder / name for name in (LAST, PREVIOUS)]
        if paths[1].is_dir():
            # The next checkpoint could not be saved: what is the last one then takes this name.
            raise ValueError(f"{paths[1]}: is a folder; remove it, and the run goes on")
        if not any(map(os.path.lexists, paths)):
            return None
        reasons: list[str] = []
        for path in paths:
            try:
                checkpoint = read_checkpoint(path, state, self.identity, self.steps, self.ranks)
            except (ValueError, OSError) as error:
                reasons.append(words_of(error).replace(f"{path}: ", f"{path.name}: ", 1))
            else:
                return Found(checkpoint, "; ".join(reasons) or None)
        raise ValueError(
            f"{self.folder}: no checkpoint can be used ({'; '.join(reasons)}); put a whole one "
            "back, or remove both to start again from step 0"
        )

    def set_aside(self) -> None:
        """Keep a last checkpoint that was refused under another name.

        Otherwise the next one saved would make it the previous one, in the place of a whole one.
        """
        last = self.folder / LAST
        if os.path.lexists(last):
            os.replace(last, self.folder / REFUSED)
