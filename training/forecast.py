"""How much memory training will take, from two small steps of the real model.

B streams   T segment length   N = B * T tokens
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, replace

import torch
from torch import Tensor, nn

from model import StreamState
from model.slot import run
from training.allocator import keeps_freed_memory
from training.gaps import Trace, gaps, scaled
from training.ledger import Ledger
from training.loop import Batch, Step
from training.optimisers import slots_of
from training.ranks import ALONE
from training.state import TrainState
from training.step import Forward

# Streams of each part of the two small steps. Not 1: an axis of one row has free strides.
_FEW, _MORE = 2, 3


@dataclass(frozen=True)
class Forecast:
    """Bytes at the worst moment of the worst step, beyond what the process had before the model.

    Attributes:
        weights: all parameters.
        gradients: of the weights that one step trains.
        optimiser: what it keeps for each weight, once all have been trained.
        streams: the memories that are carried.
        activations: all else: what the passes keep for the backward pass, and what passes.
        gaps: what the process keeps between them, because no other tensor fits in there.
    """

    weights: int
    gradients: int
    optimiser: int
    streams: int
    activations: int
    gaps: int

    @property
    def total(self) -> int:
        """All of it."""
        return sum(astuple(self))


@dataclass(frozen=True)
class ProbeBatch:
    """A batch of a few streams."""

    input_BT: Tensor
    target_BT: Tensor
    first: bool = False


def forecast(
    state: TrainState, batch: Batch, forward: Forward, makers: Sequence["Maker"], step: int = 0
) -> Forecast:
    """Count what real steps of a few streams hold at each moment, and scale it to all streams.

    Every moment is a constant (gradients, cast weights, encodings of distances) and a part that
    grows with the streams; two counts tell them apart, so that the worst moment of the real step
    is found, which need not be that of the small ones. Where the process keeps what is freed, some
    steps are played on a heap. No weight, stream, gradient or random number of the run is changed.

    Args:
        state: before its first step.
        batch: a real one; it gives sizes and the parts of the clusters.
        forward: how the run computes losses.
        makers: each makes a step of a kind that may come; the greediest counts.
        step: the number of the step, where some steps do more than others.
    """
    rows = forward.ranks.count(batch.input_BT.shape[0])
    parts = min(forward.micro_batches, rows)
    # The second part meets the gradients of the first; later ones bring more memories only.
    few = min(parts, 2)
    # What is counted are torch's own operations; compiled ones hold no more.
    forward = replace(forward, micro_batches=few, ranks=ALONE, run_slot=run)
    grown = (-(-rows // parts) - _FEW) / (_MORE - _FEW)
    peak, gradients, traces = 0, 0, []
    for make in makers:
        with _aside(forward.device):
            low, high = (
                _count(state, _rows_like(batch, few * n), forward, make, step)
                for n in (_FEW, _MORE)
            )
        found = _largest(low.moments, high.moments, grown)
        traces.append(scaled(low.trace, high.trace, grown))
        if found > peak:
            peak, gradients = found, high.gradients
    each = [_bytes([parameter]) for parameter in state.model.parameters()]
    weights = sum(each)
    kept = len([name for name in slots_of(state.optimisers["weights"]) if name != "step"])
    keeps = forward.device.type == "cpu" and keeps_freed_memory()
    streams = [_bytes(stream.tensors().values()) for stream in state.streams.values()]
    missing = (sum(streams) + max(streams)) * (parts - few) // parts
    counted = gradients + sum(streams)
    return Forecast(
        weights=weights,
        gradients=gradients,
        optimiser=kept * weights,
        streams=sum(streams),
        activations=max(peak + missing - counted, 0),
        gaps=gaps(traces, each, each * kept) if keeps else 0,
    )


@contextmanager
def _aside(device: torch.device) -> Iterator[None]:
    """Leave torch's random numbers as they are; so little work is done by one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            yield
    finally:
        torch.set_num_threads(threads)


# Makes a step from how losses are computed and from the batch that all of its texts give.
Maker = Callable[[Forward, Batch], Step]


@dataclass(frozen=True)
class _Count:
    """What a small step holds after each operation, and the gradients it leaves, in bytes."""

    moments: list[int]
    gradients: int
    trace: Trace


class _Still(torch.optim.Optimizer):
    """An optimiser that moves nothing.

    Attributes:
        began: how many moments there were when the gradients were first set free.
        changes: how many changes there were then.
    """

    def __init__(self, parameters: list[nn.Parameter], ledger: Ledger) -> None:
        super().__init__(parameters, {"lr": 0.0})
        self.ledger, self.began, self.changes = ledger, 0, 0
        self._standing = True

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Note the moment; a search sets them free before alpha's pass and again after it."""
        if self._standing:
            self.began, self.changes = len(self.ledger.moments), len(self.ledger.changes)
        self._standing = False
        super().zero_grad(set_to_none)

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Leave everything as it is."""


def _count(state: TrainState, batch: Batch, forward: Forward, make: Maker, number: int) -> _Count:
    """One step, as if the gradients of another one before it stood until it sets them free."""
    weights, others = list(state.model.parameters()), list(state.parameters.values())
    take, ledger = make(forward, batch), Ledger()
    optimiser = _Still(weights, ledger)
    with ledger:
        scratch = TrainState(
            model=state.model,
            optimisers={"weights": optimiser, "alpha": _Still(others or weights, ledger)},
            streams=_streams(state, len(batch.input_BT)),
            parameters=state.parameters,
            step=number,
            loss_sum=torch.zeros_like(state.loss_sum),
        )
        before = _carried(ledger, scratch)
        take(scratch, batch)
        after = _carried(ledger, scratch)
        sizes, changes = tuple(ledger.sizes), tuple(ledger.changes)
    trace = Trace(sizes, changes, optimiser.changes, before, after)
    gradients = _bytes(p.grad for p in weights if p.grad is not None)
    for parameter in (*weights, *others):
        parameter.grad = None
    moments = [
        live + gradients * (moment < optimiser.began) for moment, live in enumerate(ledger.moments)
    ]
    return _Count(moments, gradients, trace)


def _carried(ledger: Ledger, state: TrainState) -> tuple[int | None, ...]:
    """The storages of the memories that the streams carry, in an order that is always the same."""
    streams = state.streams.values()
    carried = [tensor for stream in streams for tensor in stream.memory if tensor is not None]
    return tuple(map(ledger.index, carried))


def _streams(state: TrainState, rows: int) -> dict[str, StreamState]:
    return {name: state.model.initial_state(rows) for name in state.streams}


def _rows_like(batch: Batch, rows: int) -> ProbeBatch:
    """So many equal streams whose tokens lie in the clusters as those of the whole batch do."""

    def stream(ids_BT: Tensor) -> Tensor:
        ids_N, segment = ids_BT.flatten().sort().values, ids_BT.shape[1]
        place_T = (torch.arange(segment, dtype=torch.float64) + 0.5) * (len(ids_N) / segment)
        return ids_N[place_T.long()].repeat(rows, 1)

    return ProbeBatch(stream(batch.input_BT), stream(batch.target_BT))


def _largest(low: Sequence[int], high: Sequence[int], grown: float) -> int:
    """The worst moment of a step that is `grown` times as far from `low` as `high` is."""
    if len(low) != len(high):
        # Code that takes other ways for other sizes: the moments cannot be paired.
        low, high = [max(low)], [max(high)]
    return round(max(a + (b - a) * grown for a, b in zip(low, high, strict=True)))


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)
