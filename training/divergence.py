"""Stop on NaN, inf or an implausible loss before anything is logged, validated or saved."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from training.distributed import Ranks
from training.endings import Diverged
from training.state import TrainState

LOSS_BOUND_NATS = 50.0


def check_finite(state: TrainState, loss_nats: float, ranks: Ranks) -> None:
    """Stop all ranks where one holds NaN or inf, or where the last loss is implausible.

    Diverged names the step, the tensor and what to try.
    """
    problem = ranks.first_message(_divergence(state, loss_nats))
    if problem is not None:
        raise Diverged(
            f"diverged at step {state.step}: {problem}; lower optimiser.lr, raise "
            "optimiser.warmup_steps or give a lower optimiser.clip_norm, in another --run directory"
        )


def _divergence(state: TrainState, loss_nats: float) -> str | None:
    for name, tensor in _trained(state):
        # A sum is several times faster, and no NaN or infinity can hide in it.
        if not torch.isfinite(tensor.sum()) and not torch.isfinite(tensor).all():
            return f"{name} is not finite"
    for loss in (loss_nats, float(state.loss_sum) / max(state.loss_steps, 1)):
        if not (math.isfinite(loss) and loss < LOSS_BOUND_NATS):
            return f"the loss is {loss:.3g} nats"
    return None


def _trained(state: TrainState) -> Iterator[tuple[str, Tensor]]:
    """Everything that the steps move, by name."""
    names: dict[Tensor, str] = {}
    for name, weight in [*state.model.named_parameters(), *state.parameters.items()]:
        names[weight] = name
        yield f"parameter {name}", weight
    for optimiser in state.optimisers.values():
        for moved, slots in optimiser.state.items():
            for slot, value in slots.items():
                if isinstance(value, Tensor):
                    yield f"the optimiser's {slot} of {names[moved]}", value
    for stream in state.streams.values():
        for name, value in stream.tensors().items():
            yield f"stream {name}", value
