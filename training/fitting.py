"""Whether tensors from a file are those of this run: every name, type and shape."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from training.optimisers import slots_of
from training.state import TrainState

Form = tuple[torch.dtype, tuple[int, ...]]


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
