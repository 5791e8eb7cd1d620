"""Checkpoints: the whole state in one file, compared with the run before anything is restored."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor

from model import StreamState
from training.distributed import ALONE, Ranks
from training.loop import Best, TrainState
from training.optim import slots_of
from training.tensor_file import read_tensors, write_tensors

Form = tuple[torch.dtype, tuple[int, ...]]
_OF_ANOTHER = re.compile(r"random\.(cpu|cuda)\.[1-9]\d*")


class _BestStep(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    nats_per_token: float
    step: int = Field(ge=-1)


class _BestHeader(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    version: int
    identity: str
    step: int = Field(ge=1)


class _Header(_BestHeader):
    loss_steps: int = Field(ge=0)
    tokens: int = Field(ge=0)
    best: _BestStep
    elapsed_s: float = Field(ge=0, allow_inf_nan=False)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was read and fits its run: restoring it cannot fail half way."""

    header: _Header
    tensors: Mapping[str, Tensor]

    @property
    def step(self) -> int:
        """Steps done when it was saved."""
        return self.header.step

    def restore(self, state: TrainState) -> None:
        """Put a run back to where it was saved."""
        _restore(state, self.tensors)
        state.step = self.header.step
        state.loss_steps = self.header.loss_steps
        state.tokens = self.header.tokens
        state.best = Best(**self.header.best.model_dump())
        state.elapsed_s = self.header.elapsed_s


def save_checkpoint(
    path: Path,
    state: TrainState,
    identity: str,
    keep_old_as: Path | None = None,
    ranks: Ranks = ALONE,
) -> None:
    """Write everything that a resume needs into one safetensors file.

    The first rank writes the memories and random numbers of all; the others wait until it has.

    Raises:
        OSError: the disk is full or the folder not writable; the checkpoint before stays.
    """
    header = {
        "identity": identity,
        "step": state.step,
        "loss_steps": state.loss_steps,
        "tokens": state.tokens,
        "best": asdict(state.best),
        "elapsed_s": state.elapsed_s,
    }
    tensors = _tensors_of(state, ranks)
    if ranks.is_first:
        write_tensors(path, tensors, header, keep_old_as)
    ranks.wait()


def read_checkpoint(
    path: Path, state: TrainState, identity: str, steps: int, ranks: Ranks = ALONE
) -> Checkpoint:
    """Read a checkpoint and compare all of it with the run; the run is not touched.

    Args:
        path: the file.
        state: the run as it is set up.
        identity: whose checkpoint it must be.
        steps: how many steps the run takes in all.
        ranks: the processes of the run, as many as when it was saved or not; each takes its part.

    Raises:
        ValueError: the file is damaged, or belongs to another experiment, or does not fit.
        OSError: it cannot be read.
    """
    tensors, content = read_tensors(path)
    _check_identity(path, content.get("identity"), identity)
    try:
        header = _Header.model_validate(content)
    except ValidationError as error:
        raise ValueError(f"{path}: {_first(error)}") from error
    if max(header.step, header.loss_steps, header.best.step) > steps:
        raise ValueError(f"{path}: is of step {header.step}, the run has {steps}")
    tensors = own_part(tensors, ranks)
    if problem := misfit(tensors, state):
        raise ValueError(f"{path}: does not fit this experiment ({problem})")
    return Checkpoint(header, tensors)


def save_best(path: Path, state: TrainState, identity: str) -> None:
    """Write the weights alone, and what is trained beside them.

    Raises:
        OSError: the disk is full or the folder not writable; the file before stays.
    """
    header = {"identity": identity, "step": state.step}
    write_tensors(path, _weights_of(state), header)


def read_best(path: Path, state: TrainState, identity: str) -> tuple[dict[str, Tensor], int]:
    """The weights of the best step and that step; the run is not touched.

    Raises:
        ValueError: the file is damaged, or belongs to another experiment, or does not fit.
        OSError: it cannot be read.
    """
    tensors, content = read_tensors(path)
    _check_identity(path, content.get("identity"), identity)
    try:
        header = _BestHeader.model_validate(content)
    except ValidationError as error:
        raise ValueError(f"{path}: {_first(error)}") from error
    if problem := misfit(tensors, state, whole=False):
        raise ValueError(f"{path}: does not fit this experiment ({problem})")
    return tensors, header.step


def read_weights(path: Path, state: TrainState, identity: str, steps: int) -> dict[str, Tensor]:
    """The weights in the checkpoint of a run that is done; the run is not touched.

    Args:
        path: the file.
        state: model and parameters as they are set up; optimisers and streams are not looked at.
        identity: whose checkpoint it must be.
        steps: how many steps the run takes in all.

    Raises:
        ValueError: the file is damaged, of another experiment, does not fit, or is not of the end.
        OSError: it cannot be read.
    """
    tensors, content = read_tensors(path)
    _check_identity(path, content.get("identity"), identity)
    if content.get("step") != steps:
        raise ValueError(f"{path}: is of step {content.get('step')}, the run has {steps}")
    weights = {k: v for k, v in tensors.items() if k.startswith(("model.", "parameter."))}
    if problem := misfit(weights, state, whole=False):
        raise ValueError(f"{path}: does not fit this experiment ({problem})")
    return weights


def _check_identity(path: Path, found: object, wanted: str) -> None:
    if found != wanted:
        raise ValueError(f"{path}: belongs to another experiment")


def _first(error: ValidationError) -> str:
    problem = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}"


def _weights_of(state: TrainState) -> dict[str, Tensor]:
    tensors = {f"model.{k}": v for k, v in state.model.state_dict().items()}
    return tensors | {f"parameter.{k}": v for k, v in state.parameters.items()}


def _tensors_of(state: TrainState, ranks: Ranks = ALONE) -> dict[str, Tensor]:
    tensors = _weights_of(state)
    for name, optimiser in state.optimisers.items():
        for index, slots in optimiser.state_dict()["state"].items():
            tensors |= {
                f"optimiser.{name}.{index}.{key}": value
                for key, value in slots.items()
                if value is not None
            }
    for name, stream in state.streams.items():
        whole = {k: ranks.gather(v) for k, v in stream.tensors().items()}
        tensors |= {f"stream.{name}.{k}": v for k, v in whole.items()}
    tensors["loss_sum"] = state.loss_sum
    return tensors | random_states(ranks)


def _under(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def restore_weights(state: TrainState, tensors: Mapping[str, Tensor]) -> None:
    """Put tensors that fit into the model and what is trained beside it."""
    state.model.load_state_dict(_under(tensors, "model."))
    for name, parameter in state.parameters.items():
        parameter.data.copy_(tensors[f"parameter.{name}"])


def _restore(state: TrainState, tensors: Mapping[str, Tensor]) -> None:
    restore_weights(state, tensors)
    for name, optimiser in state.optimisers.items():
        slots: dict[int, dict[str, Tensor]] = {}
        for key, value in _under(tensors, f"optimiser.{name}.").items():
            index, _, slot = key.partition(".")
            slots.setdefault(int(index), {})[slot] = value
        optimiser.load_state_dict(
            {"state": slots, "param_groups": optimiser.state_dict()["param_groups"]}
        )
    device = next(state.model.parameters()).device
    for name, stream in state.streams.items():
        found = {k: v.to(device) for k, v in _under(tensors, f"stream.{name}.").items()}
        state.streams[name] = StreamState.from_tensors(found, like=stream)
    state.loss_sum = tensors["loss_sum"].to(device)
    torch.set_rng_state(tensors["random.cpu"])
    if "random.cuda" in tensors and torch.cuda.is_available():
        torch.cuda.set_rng_state(tensors["random.cuda"])


def misfit(found: Mapping[str, Tensor], state: TrainState, *, whole: bool = True) -> str | None:
    """Say how tensors differ from what a run holds; None where they can be restored.

    Args:
        found: tensors by name.
        state: the run as it is set up.
        whole: a whole checkpoint; otherwise the weights alone.
    """
    needed, allowed = dict(_weight_forms(state)), {}
    if whole:
        needed |= dict(_other_forms(state))
        allowed = {f"optimiser.{name}": form for name, form in _slot_forms(state)}
        if torch.cuda.is_available():
            allowed["random.cuda"] = _form(torch.cuda.get_rng_state())
    for name in needed:
        if name not in found:
            return f"{name}: missing"
    for name, tensor in found.items():
        if name in needed or name in allowed:
            wanted = needed.get(name) or allowed[name]
            if _form(tensor) != wanted:
                return f"{name}: {_shown(_form(tensor))} instead of {_shown(wanted)}"
        elif not (whole and _allowed_without_form(name, tensor, state)):
            return f"{name}: no such tensor in this run"
    return _incomplete(found, state) or _bad_generator(found) if whole else None


def _form(tensor: Tensor) -> Form:
    return tensor.dtype, tuple(tensor.shape)


def _shown(form: Form) -> str:
    return f"{str(form[0]).removeprefix('torch.')} {list(form[1])}"


def _weight_forms(state: TrainState) -> Iterator[tuple[str, Form]]:
    for name, tensor in state.model.state_dict().items():
        yield f"model.{name}", _form(tensor)
    for name, parameter in state.parameters.items():
        yield f"parameter.{name}", _form(parameter)


def _other_forms(state: TrainState) -> Iterator[tuple[str, Form]]:
    """What every checkpoint holds beside weights and optimisers."""
    for stream_name, stream in state.streams.items():
        for name, tensor in stream.tensors().items():
            yield f"stream.{stream_name}.{name}", _form(tensor)
    yield "loss_sum", _form(state.loss_sum)
    yield "random.cpu", _form(torch.get_rng_state())


def _slot_forms(state: TrainState) -> Iterator[tuple[str, Form]]:
    """What the optimisers hold for each tensor that they have moved."""
    for name, optimiser in state.optimisers.items():
        for index, weight in enumerate(_weights(optimiser)):
            for slot in slots_of(optimiser):
                form = (torch.float32, ()) if slot == "step" else _form(weight)
                yield f"{name}.{index}.{slot}", form


def _weights(optimiser: torch.optim.Optimizer) -> list[Tensor]:
    return [weight for group in optimiser.param_groups for weight in group["params"]]


def _allowed_without_form(name: str, tensor: Tensor, state: TrainState) -> bool:
    """A candidate's own state, which only its first step makes; the GPU's generator on a CPU."""
    if name == "random.cuda":
        return True
    for stream_name, stream in state.streams.items():
        for slot, states in enumerate(stream.blocks):
            for index in range(len(states)):
                if name == f"stream.{stream_name}.blocks.{slot}.{index}":
                    return tensor.ndim > 0 and len(tensor) == len(stream.seen_B)
    return False


def _incomplete(found: Mapping[str, Tensor], state: TrainState) -> str | None:
    """An optimiser holds all its slots for a tensor or none."""
    for name, optimiser in state.optimisers.items():
        begun = optimiser.state_dict()["state"]
        for index in range(len(_weights(optimiser))):
            slots = [f"optimiser.{name}.{index}.{slot}" for slot in slots_of(optimiser)]
            there = [slot for slot in slots if slot in found]
            if len(there) != len(slots) and (there or index in begun):
                return f"{next(slot for slot in slots if slot not in found)}: missing"
    return None


def _bad_generator(found: Mapping[str, Tensor]) -> str | None:
    try:
        torch.Generator().set_state(found["random.cpu"])
    except RuntimeError as error:
        return f"random.cpu: {error}"
    return None


def random_states(ranks: Ranks) -> dict[str, Tensor]:
    """The generators of all ranks; those of the first have no number in their names."""
    states = {"cpu": ranks.gather(torch.get_rng_state()[None])}
    if torch.cuda.is_available():
        states["cuda"] = ranks.gather(torch.cuda.get_rng_state()[None])
    return {
        f"random.{kind}{f'.{rank}' if rank else ''}": state
        for kind, of_ranks in states.items()
        for rank, state in enumerate(of_ranks)
    }


def own_part(tensors: Mapping[str, Tensor], ranks: Ranks) -> dict[str, Tensor]:
    """What one process would have saved that had only this rank's streams.

    A rank that the run did not have when it was saved goes on with its generator as it is.
    """
    own: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if name.startswith("stream.") and tensor.ndim:
            own[name] = tensor[ranks.rows(len(tensor))]
        elif not _OF_ANOTHER.fullmatch(name):
            own[name] = tensor
    if ranks.rank:
        own.pop("random.cuda", None)
        own["random.cpu"] = torch.get_rng_state()
        for kind in ("random.cpu", "random.cuda"):
            if f"{kind}.{ranks.rank}" in tensors:
                own[kind] = tensors[f"{kind}.{ranks.rank}"]
    return own
