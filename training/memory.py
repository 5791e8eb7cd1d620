"""How much memory training will take, counted in two small steps of the real model.

B streams   T segment length   N = B * T tokens
"""

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from model.slot import BuffersKept, run
from training.distributed import ALONE
from training.optim import slots_of
from training.runtime import keeps_freed_memory
from training.state import Batch, Step, TrainState
from training.step import Forward

# Of all tensors, what lies free between them in a process that keeps what is freed. Fitted to the
# configurations of benchmarks/memory_forecast.py: a mean error of 6.9%; a simulated heap had 8.1%.
_OVERHEAD = 0.2
# Streams of each part of the two small steps. Not 1: an axis of one row has free strides.
_FEW, _MORE = 2, 3
# Makes a step from how losses are computed and from the batch that all of its texts give.
Maker = Callable[[Forward, Batch], Step]


class Ledger(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the storages that operations make while it is entered, forwards and backwards.

    `moments` holds, after each operation, the bytes that live of what was made since entering. It
    sees what operations hand over, not what a kernel takes for itself while it runs.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.moments: list[int] = []
        self._live = 0
        self._known: dict[int, weakref.ref[Any]] = {}

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run an operation and count what it made."""
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        made = {_key(tensor): tensor for tensor in _tensors((result,))}
        fresh = made.keys() - self._known.keys()
        # A view of what was there before is nothing new.
        fresh = fresh and fresh - {_key(t) for t in _tensors((*args, *kwargs.values()))}
        for key in fresh:
            self._count(key, made[key].untyped_storage())
        self.moments.append(self._live)
        return result

    def _count(self, key: int, storage: torch.UntypedStorage) -> None:
        size = storage.nbytes()

        def freed(_: object) -> None:
            self._live -= size
            del self._known[key]

        self._live += size
        self._known[key] = weakref.ref(storage, freed)


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    """The tensors among the values and in the lists among them; operations nest no deeper."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from (inner for inner in value if isinstance(inner, Tensor))


def _key(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


@dataclass(frozen=True)
class Forecast:
    """Bytes at the worst moment of the worst step, beyond what the process had before the model.

    Attributes:
        gradients: of the weights that one step trains.
        optimiser: what it keeps for each weight, once all have been trained.
        activations: all else: what the passes keep for the backward pass, and what passes.
        overhead: what lies free between them, where the process keeps what is freed.
    """

    weights: int
    gradients: int
    optimiser: int
    streams: int
    activations: int
    overhead: int

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
    is found, which need not be that of the small ones. The weights are those of the first step:
    what `LanguageModel.may_cost_more` names can come to need more. No weight, buffer, stream,
    gradient or random number of the run, which is before its first step, is changed.

    The batch is a real one: it gives sizes and the parts of the clusters. Each of the makers makes
    a step of a kind that may come, of number `step` where some steps do more than others; the
    greediest counts.
    """
    rows = forward.ranks.count(batch.input_BT.shape[0])
    parts = min(forward.micro_batches, rows)
    # The second part meets the gradients of the first; later ones bring more memories only.
    few = min(parts, 2)
    # What is counted are torch's own operations; compiled ones hold no more.
    forward = replace(forward, micro_batches=few, ranks=ALONE, run_slot=run)
    grown = (-(-rows // parts) - _FEW) / (_MORE - _FEW)
    peak = gradients = 0
    for make in makers:
        with BuffersKept(state.model), _aside(forward.device):
            (low, _), (high, of_step) = (
                _count(state, _rows_like(batch, few * n), forward, make, step)
                for n in (_FEW, _MORE)
            )
        largest = _largest(low, high, grown)
        if largest > peak:
            peak, gradients = largest, of_step
    weights = _bytes(state.model.parameters())
    moments = [name for name in slots_of(state.optimisers["weights"]) if name != "step"]
    streams = [_bytes(stream.tensors().values()) for stream in state.streams.values()]
    missing = (sum(streams) + max(streams)) * (parts - few) // parts
    counted = gradients + sum(streams)
    tensors = Forecast(
        weights=weights,
        gradients=gradients,
        optimiser=len(moments) * weights,
        streams=sum(streams),
        activations=max(peak + missing - counted, 0),
        overhead=0,
    )
    if forward.device.type == "cpu" and keeps_freed_memory():
        return replace(tensors, overhead=round(_OVERHEAD * tensors.total))
    return tensors


@contextmanager
def _aside(device: torch.device) -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            yield
    finally:
        torch.set_num_threads(threads)


class _Still(torch.optim.Optimizer):
    """An optimiser that moves nothing; `freed_at` is the moment that first frees gradients."""

    def __init__(self, parameters: list[nn.Parameter], ledger: Ledger) -> None:
        super().__init__(parameters, {"lr": 0.0})
        self.ledger = ledger
        self.freed_at: int | None = None

    def zero_grad(self, set_to_none: bool = True) -> None:
        # A search frees them before alpha's pass and again after it.
        if self.freed_at is None:
            self.freed_at = len(self.ledger.moments)
        super().zero_grad(set_to_none)

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        pass


def _count(
    state: TrainState, batch: Batch, forward: Forward, make: Maker, number: int
) -> tuple[list[int], int]:
    """Bytes that a step holds after each operation, and those of the gradients that it leaves.

    It is as if the gradients of another step before it stood until it sets them free.
    """
    weights, others = list(state.model.parameters()), list(state.parameters.values())
    take, ledger = make(forward, batch), Ledger()
    optimiser = _Still(weights, ledger)
    with ledger:
        scratch = TrainState(
            model=state.model,
            optimisers={"weights": optimiser, "alpha": _Still(others or weights, ledger)},
            streams={
                name: state.model.initial_state(len(batch.input_BT)) for name in state.streams
            },
            parameters=state.parameters,
            multipliers=dict(state.multipliers),
            step=number,
            loss_sum=torch.zeros_like(state.loss_sum),
        )
        take(scratch, batch)
    gradients = _bytes(p.grad for p in weights if p.grad is not None)
    for parameter in (*weights, *others):
        parameter.grad = None
    freed_at = optimiser.freed_at or 0
    moments = [live + gradients * (n < freed_at) for n, live in enumerate(ledger.moments)]
    return moments, gradients


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
