"""Which checkpoint a run goes on from, and the weights of the best steps that checkpoints name."""

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from training.checkpoint import Checkpoint, read_best, read_checkpoint, save_best, save_checkpoint
from training.distributed import ALONE, Ranks
from training.loop import TrainState
from training.tensor_file import read_header
from utils.files import words_of

LAST, PREVIOUS, REFUSED = (
    "last.safetensors",
    "previous.safetensors",
    "last.refused.safetensors",
)
# Of a run begun before the weights of the best step carried its number.
_OLD_BEST = "best.safetensors"
_BEST = re.compile(r"best-(\d+)\.safetensors")


@dataclass(frozen=True)
class Found:
    """The checkpoint to go on from, and why it is not the last one where it is not."""

    checkpoint: Checkpoint
    refused: str | None


@dataclass(frozen=True)
class Checkpoints:
    """The last two checkpoints of a run; at any moment one of them is whole.

    The weights of a best step are a file of their own, kept while a checkpoint names the step: a
    resume goes back to the step that its checkpoint calls the best, and may never find a better.

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

        Weights of steps that neither of them calls the best are removed once it is whole.

        Raises:
            OSError: the disk is full or the folder not writable; both stay as they were.
        """
        save_checkpoint(
            self.folder / LAST, state, self.identity, self.folder / PREVIOUS, self.ranks
        )
        if self.ranks.is_first:
            self.remove_unnamed()

    def save_best(self, state: TrainState) -> None:
        """Write the weights of the step that is the best from now on.

        Weights of steps that neither checkpoint calls the best are removed once they are whole.

        Raises:
            OSError: the disk is full or the folder not writable; those before stay.
        """
        if self.ranks.is_first:
            save_best(self._best(state.step), state, self.identity)
            self.remove_unnamed(but=state.step)
        self.ranks.wait()

    def read_best(self, state: TrainState) -> dict[str, Tensor]:
        """The weights of the step that the run calls the best; the run is not touched.

        Raises:
            ValueError: they are damaged, or belong to another experiment or step, or do not fit.
            OSError: they cannot be read.
        """
        path = self._best(state.best.step)
        tensors, step = read_best(path, state, self.identity)
        if step != state.best.step:
            raise ValueError(f"{path}: is of step {step}")
        return tensors

    def name_old_best(self) -> None:
        """Give the weights that an older version wrote the name that is looked for now."""
        try:
            step = read_header(self.folder / _OLD_BEST).get("step")
        except (ValueError, OSError):
            return
        if isinstance(step, int):
            os.replace(self.folder / _OLD_BEST, self._best(step))

    def remove_unnamed(self, but: int | None = None) -> None:
        """Remove the weights of steps that no checkpoint calls the best.

        Where a checkpoint cannot be read, nobody knows what it names, and all stay.

        Args:
            but: a step that the next checkpoint may call the best.
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
            number = _BEST.fullmatch(path.name)
            if number is not None and int(number[1]) not in named:
                path.unlink(missing_ok=True)

    def _best(self, step: int) -> Path:
        return self.folder / f"best-{step}.safetensors"

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
