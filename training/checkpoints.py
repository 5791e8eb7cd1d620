"""The last two checkpoints of a run and the weights of its best step, as files of its folder."""

import os
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from training.checkpoint import (
    FOREIGN,
    Checkpoint,
    read_best_weights,
    read_checkpoint,
    save_best_weights,
    save_checkpoint,
)
from training.distributed import ALONE, Ranks
from training.state import TrainState
from training.tensor_file import read_header
from utils.files import words_of

LAST, PREVIOUS = "last.safetensors", "previous.safetensors"
REFUSED = "last.refused.safetensors"
_BEST_WEIGHTS = re.compile(r"best-(\d+)\.safetensors")


@dataclass(frozen=True)
class Checkpoints:
    """The last two checkpoints of a run; at any moment one of them is whole.

    The weights of a best step are a file of their own, kept while a checkpoint names the step: a
    resume goes back to the step that its checkpoint calls the best, and may never find a better.
    The first rank writes, all read. Where writing fails, what was there before stays.
    """

    folder: Path
    identity: str
    steps: int
    ranks: Ranks = ALONE

    def save(self, state: TrainState) -> None:
        """Write the last one; what was the last one becomes the previous one."""
        save_checkpoint(
            self.folder / LAST, state, self.identity, self.ranks, self.folder / PREVIOUS
        )
        if self.ranks.is_first:
            self.remove_unnamed()

    def save_best(self, state: TrainState) -> None:
        """Write the weights of the step that is the best from now on."""
        if self.ranks.is_first:
            save_best_weights(self._best(state.step), state, self.identity)
            self.remove_unnamed(but=state.step)
        self.ranks.wait()

    def read_best(self, state: TrainState) -> dict[str, Tensor]:
        """The weights of the run's best step; ValueError where their file does not fit the run."""
        return read_best_weights(self._best(state.best.step), state, self.identity)

    def remove_unnamed(self, but: int | None = None) -> None:
        """Remove the weights of steps that no checkpoint calls the best.

        Where a checkpoint cannot be read, nobody knows what it names, and all stay. The next
        checkpoint may name the step `but`.
        """
        named = set[int]() if but is None else {but}
        for path in (self.folder / LAST, self.folder / PREVIOUS):
            try:
                named.add(int(read_header(path)["best"]["step"]))
            except FileNotFoundError:
                continue
            except (ValueError, TypeError, KeyError, OSError):
                return
        for path in self.folder.iterdir():
            number = _BEST_WEIGHTS.fullmatch(path.name)
            if number is not None and int(number[1]) not in named:
                path.unlink(missing_ok=True)

    def _best(self, step: int) -> Path:
        return self.folder / f"best-{step}.safetensors"

    def find(self, state: TrainState) -> Checkpoint | None:
        """The newest usable one; None where there is none at all. Nothing is changed.

        ValueError: there are some, but none that can be used, or the ranks see different ones.
        """
        checkpoint = self._find(state)
        if not self.ranks.all_equal(0 if checkpoint is None else checkpoint.header.step):
            raise ValueError(
                f"{self.folder}: the processes found different checkpoints there; all machines "
                "must see the same run folder"
            )
        return checkpoint

    def _find(self, state: TrainState) -> Checkpoint | None:
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
                return replace(checkpoint, refused="; ".join(reasons) or None)
        remedy = "put a whole one back, or remove both to start again from step 0"
        if any(FOREIGN in reason for reason in reasons):
            remedy = "use another --run directory"
        why = "; ".join(reasons)
        raise ValueError(f"{self.folder}: no checkpoint can be used ({why}); {remedy}")

    def newest(self) -> str:
        """Which whole checkpoint is the newest, in words, for a run that has to end."""
        for path in (self.folder / LAST, self.folder / PREVIOUS):
            # The process that writes them renames one to the other while this one looks.
            with suppress(OSError, ValueError):
                step = read_header(path)["step"]
                return f"the last whole checkpoint is that of step {step} ({path})"
        return "there is no checkpoint yet, so it begins again at step 0"

    def set_aside(self) -> None:
        """Keep a last checkpoint that was refused under another name.

        Otherwise the next one saved would make it the previous one, in the place of a whole one.
        """
        last = self.folder / LAST
        if os.path.lexists(last):
            os.replace(last, self.folder / REFUSED)
