"""Checkpoints: the whole state in one file, compared with the run before anything is restored."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor

from model import StreamState
from training.distributed import Ranks
from training.optim import slots_of
from training.state import Best, TrainState
from training.tensor_file import read_tensors, write_tensors
from utils.validation import first_problem

FOREIGN = "belongs to another experiment"
Form = tuple[torch.dtype, tuple[int, ...]]
_OTHER_RANKS_GENERATOR = re.compile(r"random\.(cpu|cuda)\.[1-9]\d*")
_Header = TypeVar("_Header", bound="_WeightsHeader")


class _WeightsHeader(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    version: int
    identity: str
    step: int = Field(ge=1)


class _StateHeader(_WeightsHeader):
    loss_steps: int = Field(ge=0)
    tokens: int = Field(ge=0)
    best: Best
    validations: int = Field(ge=0)
    elapsed_s: float = Field(ge=0, allow_inf_nan=False)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was read and fits its run: restoring it cannot fail half way.

    `refused` says what is wrong with the last one, where this is the one before it.
    """

    header: _StateHeader
    tensors: Mapping[str, Tensor]
    refused: str | None = None

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
        state.loss_sum = self.tensors["loss_sum"].to(next(state.model.parameters()).device)
        torch.set_rng_state(self.tensors["random.cpu"])
        if "random.cuda" in self.tensors and torch.cuda.is_available():
            torch.cuda.set_rng_state(self.tensors["random.cuda"])
        state.step = self.header.step
        state.loss_steps = self.header.loss_steps
        state.tokens = self.header.tokens
        state.best = self.header.best
        state.validations = self.header.validations
        state.elapsed_s = self.header.elapsed_s


def save_checkpoint(
    path: Path,
    state: TrainState,
    identity: str,
    ranks: Ranks,
    keep_old_as: Path | None = None,
) -> None:
    """Write everything that a resume needs into one safetensors file.

    The first rank writes the memories and random numbers of all; the others wait until it has.
    Where it cannot be written (OSError) the checkpoint before stays.
    """
    header = {
        "identity": identity,
        "step": state.step,
        "loss_steps": state.loss_steps,
        "tokens": state.tokens,
        "best": state.best.model_dump(),
        "validations": state.validations,
        "elapsed_s": state.elapsed_s,
    }
    tensors = _tensors_of(state, ranks)
    if ranks.is_first:
        write_tensors(path, tensors, header, keep_old_as)
    ranks.wait()


def read_checkpoint(
    path: Path, state: TrainState, identity: str, steps: int, ranks: Ranks
) -> Checkpoint:
    """Read this rank's shard and compare it with a run of so many steps, which is not touched.

    ValueError: the file is damaged, or belongs to another experiment, or does not fit.
    """
    tensors, header = _read(path, identity, _StateHeader)
    if max(header.step, header.loss_steps, header.best.step, header.validations) > steps:
        raise ValueError(f"{path}: is of step {header.step}, the run has {steps}")
    tensors = shard_for_rank(tensors, ranks)
    _check_compatible(path, tensors, state)
    return Checkpoint(header, tensors)


def save_best_weights(path: Path, state: TrainState, identity: str) -> None:
    """Write the weights of the step that is the best from now on."""
    write_tensors(path, _weights_of(state), {"identity": identity, "step": state.step})


def read_best_weights(path: Path, state: TrainState, identity: str) -> dict[str, Tensor]:
    """The weights of the step that `state` calls the best.

    ValueError: the file is damaged, of another experiment or step, or does not fit.
    """
    tensors, header = _read(path, identity, _WeightsHeader)
    _check_compatible(path, tensors, state, weights_only=True)
    if header.step != state.best.step:
        raise ValueError(f"{path}: is of step {header.step}")
    return tensors


def read_weights(path: Path, state: TrainState, identity: str, steps: int) -> dict[str, Tensor]:
    """The weights in the checkpoint of a run that is done; of `state` only these are looked at.

    ValueError: the file is damaged, of another experiment, does not fit, or is not of the end.
    """
    tensors, header = _read(path, identity, _StateHeader)
    if header.step != steps:
        raise ValueError(f"{path}: is of step {header.step}, the run has {steps}")
    weights = {k: v for k, v in tensors.items() if k.startswith(("model.", "parameter."))}
    _check_compatible(path, weights, state, weights_only=True)
    return weights


def restore_weights(state: TrainState, tensors: Mapping[str, Tensor]) -> None:
    """Put tensors that fit into the model and what is trained beside it."""
    state.model.load_state_dict(_under(tensors, "model."))
    for name, parameter in state.parameters.items():
        parameter.data.copy_(tensors[f"parameter.{name}"])


def _read(
    path: Path, identity: str, header_type: type[_Header]
) -> tuple[dict[str, Tensor], _Header]:
    tensors, content = read_tensors(path)
    if content.get("identity") != identity:
        raise ValueError(f"{path}: {FOREIGN}")
    try:
        return tensors, header_type.model_validate(content)
    except ValidationError as error:
        raise ValueError(f"{path}: {first_problem(error)}") from error


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
    generators = {"cpu": ranks.gather(torch.get_rng_state()[None])}
    if torch.cuda.is_available():
        generators["cuda"] = ranks.gather(torch.cuda.get_rng_state()[None])
    # Those of the first rank have no number in their names.
    return tensors | {
        f"random.{kind}{f'.{rank}' if rank else ''}": generator
        for kind, of_ranks in generators.items()
        for rank, generator in enumerate(of_ranks)
    }


def _under(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def shard_for_rank(tensors: Mapping[str, Tensor], ranks: Ranks) -> dict[str, Tensor]:
    """What one process would have saved that had only this rank's streams.

    A rank that the run did not have when it was saved goes on with its generator as it is.
    """
    shard: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if name.startswith("stream.") and tensor.ndim:
            shard[name] = tensor[ranks.rows(len(tensor))]
        elif not _OTHER_RANKS_GENERATOR.fullmatch(name):
            shard[name] = tensor
    if ranks.rank:
        shard.pop("random.cuda", None)
        shard["random.cpu"] = torch.get_rng_state()
        for kind in ("random.cpu", "random.cuda"):
            if f"{kind}.{ranks.rank}" in tensors:
                shard[kind] = tensors[f"{kind}.{ranks.rank}"]
    return shard


def _check_compatible(
    path: Path, tensors: Mapping[str, Tensor], state: TrainState, *, weights_only: bool = False
) -> None:
    if problem := next(_mismatches(tensors, state, weights_only), None):
        raise ValueError(f"{path}: does not fit this experiment ({problem})")


def _mismatches(
    tensors: Mapping[str, Tensor], state: TrainState, weights_only: bool
) -> Iterator[str]:
    expected = {name: _form(tensor) for name, tensor in _weights_of(state).items()}
    if not weights_only:
        expected |= _state_forms(state, tensors)
    for name, form in expected.items():
        if name not in tensors:
            yield f"{name}: missing"
        elif _form(tensors[name]) != form:
            yield f"{name}: {_shown(_form(tensors[name]))} instead of {_shown(form)}"
    for name, tensor in tensors.items():
        if name not in expected and (weights_only or not _is_optional(name, tensor, state)):
            yield f"{name}: no such tensor in this run"
    if not weights_only:
        try:
            torch.Generator().set_state(tensors["random.cpu"])
        except RuntimeError as error:
            yield f"random.cpu: {error}"


def _state_forms(state: TrainState, tensors: Mapping[str, Tensor]) -> dict[str, Form]:
    """What a checkpoint of the run must hold beside its weights."""
    forms = {"loss_sum": _form(state.loss_sum), "random.cpu": _form(torch.get_rng_state())}
    for name, multiplier in state.multipliers.items():
        forms[f"multiplier.{name}"] = _form(multiplier)
    if "random.cuda" in tensors and torch.cuda.is_available():
        forms["random.cuda"] = _form(torch.cuda.get_rng_state())
    for stream_name, stream in state.streams.items():
        for name, tensor in stream.tensors().items():
            if not name.startswith("blocks."):
                forms[f"stream.{stream_name}.{name}"] = _form(tensor)
    for name, optimiser in state.optimisers.items():
        moved = optimiser.state_dict()["state"]
        weights = [weight for group in optimiser.param_groups for weight in group["params"]]
        for index, weight in enumerate(weights):
            slots = {
                f"optimiser.{name}.{index}.{slot}": (
                    (torch.float32, ()) if slot == "step" else _form(weight)
                )
                for slot in slots_of(optimiser)
            }
            # An optimiser holds all slots of a weight that it has moved, of others none.
            if index in moved or not slots.keys().isdisjoint(tensors):
                forms |= slots
    return forms


def _form(tensor: Tensor) -> Form:
    return tensor.dtype, tuple(tensor.shape)


def _shown(form: Form) -> str:
    return f"{str(form[0]).removeprefix('torch.')} {list(form[1])}"


def _is_optional(name: str, tensor: Tensor, state: TrainState) -> bool:
    """A candidate's own state, which only steps that compute it make; the GPU's generator."""
    rows = {
        f"stream.{stream_name}.blocks.{slot}.{index}": len(stream.seen_B)
        for stream_name, stream in state.streams.items()
        for slot, states in enumerate(stream.blocks)
        for index in range(len(states))
    }
    return name == "random.cuda" or (tensor.ndim > 0 and len(tensor) == rows.get(name))
