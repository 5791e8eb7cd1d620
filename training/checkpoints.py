"""The last checkpoint of a run and the weights of its best step, as files of its folder."""

import re
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from training.checkpoint import (
    Checkpoint,
    read_checkpoint,
    read_header,
    read_weights,
    save_checkpoint,
    save_weights,
)
from training.distributed import ALONE, Ranks
from training.state import TrainState

LAST = "last.safetensors"
_BEST_WEIGHTS = re.compile(r"best-(\d+)\.safetensors")


@dataclass(frozen=True)
class Checkpoints:
    """The last checkpoint of a run, which is whole at any moment, and its best weights.

    The weights of a best step are a file of their own, kept while the checkpoint names the step: a
    resume goes back to the step that its checkpoint calls the best, and may never find a better.
    The first rank writes, all read. Where writing fails, what was there before stays.
    """

    folder: Path
    identity: str
    ranks: Ranks = ALONE

    def save(self, state: TrainState) -> None:
        """Write the last one in the place of the one before."""
        save_checkpoint(self._last, state, self.identity, self.ranks)
        if self.ranks.is_first:
            self.remove_unnamed()

    def save_best(self, state: TrainState) -> None:
        """Write the weights of the step that is the best from now on."""
        if self.ranks.is_first:
            save_weights(self.best(state.step), state, self.identity)
            self.remove_unnamed(but=state.step)
        self.ranks.wait()

    def read_best(self, state: TrainState) -> dict[str, Tensor]:
        """The weights of the run's best step."""
        return read_weights(self.best(state.best.step), self.identity, state.best.step)

    def remove_unnamed(self, but: int | None = None) -> None:
        """Remove the weights of steps that the checkpoint does not call the best.

        The next checkpoint may name the step `but`.
        """
        named = {but}
        if self._last.exists():
            named.add(read_header(self._last)["best"]["step"])
        for path in self.folder.iterdir():
            number = _BEST_WEIGHTS.fullmatch(path.name)
            if number is not None and int(number[1]) not in named:
                path.unlink(missing_ok=True)

    def best(self, step: int) -> Path:
        """The file of the weights of a best step."""
        return self.folder / f"best-{step}.safetensors"

    def find(self) -> Checkpoint | None:
        """The last one; None where there is none. Nothing is changed.

        ValueError: it cannot be used, or the ranks see different ones.
        """
        found = None
        if self._last.exists():
            found = read_checkpoint(self._last, self.identity, self.ranks)
        if not self.ranks.all_equal(0 if found is None else found.header["step"]):
            raise ValueError(
                f"{self.folder}: the processes found different checkpoints there; all machines "
                "must see the same run folder"
            )
        return found

    def newest(self) -> str:
        """Which step a run that has to end can go on from, in words."""
        if not self._last.exists():
            return "there is no checkpoint yet, so it begins again at step 0"
        step = read_header(self._last)["step"]
        return f"the last whole checkpoint is that of step {step} ({self._last})"

    @property
    def _last(self) -> Path:
        return self.folder / LAST
