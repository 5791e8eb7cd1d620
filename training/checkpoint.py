"""Checkpoints: the state of a run in one safetensors file, and the weights of its best step."""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from model.state import StreamState
from training.distributed import ALONE, Ranks
from training.state import Best, TrainState
from utils.files import write_whole

LAST = "last.safetensors"
_BEST_WEIGHTS = re.compile(r"best-(\d+)\.safetensors")
_COUNTS = ("step", "loss_steps", "tokens", "validations", "elapsed_s")
_HEADER = "parnas"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint as one rank reads it: the counts of the state, and its tensors."""

    header: Mapping[str, Any]
    tensors: Mapping[str, Tensor]

    def restore(self, state: TrainState) -> None:
        """Put a run back to where it was saved."""
        restore_weights(state, self.tensors)
        for name, optimiser in state.optimisers.items():
            slots: dict[int, dict[str, Tensor]] = {}
            for key, value in _under(self.tensors, f"optimiser.{name}.").items():
                index, _, slot = key.partition(".")
                slots.setdefault(int(index), {})[slot] = value
            optimiser.load_state_dict(
                {"state": slots, "param_groups": optimiser.state_dict()["param_groups"]}
            )
        for name, stream in state.streams.items():
            tensors = _under(self.tensors, f"stream.{name}.")
            state.streams[name] = StreamState.from_tensors(tensors, like=stream)
        state.multipliers = {
            name: self.tensors[f"multiplier.{name}"].clone() for name in state.multipliers
        }
        device = next(state.model.parameters()).device
        state.loss_sum = self.tensors["loss_sum"].to(device)
        if state.kl_sum is not None:
            state.kl_sum = self.tensors["kl_sum"].to(device)
        if "random.cpu" in self.tensors:
            torch.set_rng_state(self.tensors["random.cpu"])
        if "random.cuda" in self.tensors and torch.cuda.is_available():
            torch.cuda.set_rng_state(self.tensors["random.cuda"])
        for name in _COUNTS:
            setattr(state, name, self.header[name])
        state.best = Best(**self.header["best"])


def read_header(path: Path) -> dict[str, Any]:
    """The counts and the best step in a file, without its tensors."""
    with _opened(path) as file:
        header: dict[str, Any] = json.loads(file.metadata()[_HEADER])
        return header


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a file."""
    with _opened(path) as file:
        # Copies: what stays a view of the mapped file is aligned otherwise, and last bits of
        # later sums may depend on that.
        return {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118


def _opened(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt")
    except SafetensorError as error:
        raise ValueError(f"{path}: not a checkpoint ({error})") from error


def restore_weights(state: TrainState, tensors: Mapping[str, Tensor]) -> None:
    """Put saved weights into the model and what is trained beside it."""
    state.model.load_state_dict(_under(tensors, "model."))
    for name, parameter in state.parameters.items():
        parameter.data.copy_(tensors[f"parameter.{name}"])


def _write(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
    # Clones: tied weights are one storage, which the library would refuse.
    whole = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    write_whole(path, save(whole, metadata={_HEADER: json.dumps(header)}))


def _weights_of(state: TrainState) -> dict[str, Tensor]:
    tensors = {f"model.{k}": v for k, v in state.model.state_dict().items()}
    return tensors | {f"parameter.{k}": v for k, v in state.parameters.items()}


def _tensors_of(state: TrainState, ranks: Ranks) -> dict[str, Tensor]:
    tensors = _weights_of(state)
    for name, optimiser in state.optimisers.items():
        for index, slots in optimiser.state_dict()["state"].items():
            tensors |= {
                f"optimiser.{name}.{index}.{key}": value
                for key, value in slots.items()
                if value is not None
            }
    for name, stream in state.streams.items():
        tensors |= {f"stream.{name}.{k}": ranks.gather(v) for k, v in stream.tensors().items()}
    tensors |= {f"multiplier.{name}": value for name, value in state.multipliers.items()}
    tensors["loss_sum"] = state.loss_sum
    if state.kl_sum is not None:
        tensors["kl_sum"] = state.kl_sum
    # A row for each rank.
    tensors["random.cpu"] = ranks.gather(torch.get_rng_state()[None])
    # Not `is_available`: a run on a CPU beside a GPU has no use for a context there.
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        tensors["random.cuda"] = ranks.gather(torch.cuda.get_rng_state()[None])
    return tensors


def _under(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def shard_for_rank(tensors: Mapping[str, Tensor], ranks: Ranks) -> dict[str, Tensor]:
    """What one process would have saved that had only this rank's streams.

    A rank that the run did not have when it was saved goes on with its generator as it is.
    """
    shard: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if name.startswith("stream."):
            shard[name] = tensor[ranks.rows(len(tensor))]
        elif not name.startswith("random."):
            shard[name] = tensor
        elif ranks.rank < len(tensor):
            # torch reads a view of a later row from the first row on.
            shard[name] = tensor[ranks.rank].clone()
    return shard


@dataclass(frozen=True)
class Checkpoints:
    """The last checkpoint of a run, which is whole at any moment, and its best weights.

    The weights of a best step are a file of their own, kept while the checkpoint names the step: a
    resume goes back to that step, and may never find a better. The first rank writes, all read.
    """

    folder: Path
    ranks: Ranks = ALONE

    def save(self, state: TrainState) -> None:
        """Write everything that a resume needs; the other ranks wait until it is there.

        Where it cannot be written (OSError) the checkpoint before stays.
        """
        header = {name: getattr(state, name) for name in _COUNTS}
        tensors = _tensors_of(state, self.ranks)
        if self.ranks.is_first:
            _write(self._last, tensors, {**header, "best": asdict(state.best)})
            self.remove_unnamed()
        self.ranks.wait()

    def save_best(self, state: TrainState) -> None:
        """Write the weights of the step that is the best from now on."""
        if self.ranks.is_first:
            _write(self.best(state.step), _weights_of(state), {})
            self.remove_unnamed(but=state.step)
        self.ranks.wait()

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
            shard = shard_for_rank(read_tensors(self._last), self.ranks)
            found = Checkpoint(read_header(self._last), shard)
        steps = self.ranks.all_say(None if found is None else found.header["step"])
        if len(set(steps)) > 1:
            raise ValueError(
                f"{self.folder}: the processes found different checkpoints there; all machines "
                "must see the same run folder"
            )
        return found

    def newest(self) -> str:
        """Which step a run that has to end can go on from, in words."""
        if not self._last.exists():
            return "there is no checkpoint yet, so it starts at step 0 again"
        step = read_header(self._last)["step"]
        return f"the last complete checkpoint is of step {step} ({self._last})"

    @property
    def _last(self) -> Path:
        return self.folder / LAST
