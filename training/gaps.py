"""What a process that keeps freed memory holds beyond its tensors: the gaps between them."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

from training.heap import Heap

# Smaller tensors are many and of no weight.
_LEAST_BYTES = 1024
# The optimiser's moments lie between the tensors from the second turn on; the third is as ever.
_TURNS = 3


@dataclass(frozen=True)
class Trace:
    """What one step makes and frees.

    Attributes:
        sizes: bytes of each storage, in the order in which they are made.
        changes: the index of each storage in this order; once more where it is freed.
        began: how many changes there are before the gradients of the step before are freed.
        before: the memories that the streams have at first.
        after: those that they have at the end, in the same order; None: not of this step.
    """

    sizes: tuple[int, ...]
    changes: tuple[int, ...]
    began: int
    before: tuple[int | None, ...]
    after: tuple[int | None, ...]


def scaled(low: Trace, high: Trace, grown: float) -> Trace:
    """The trace of a step that is `grown` times as far from `low` as `high` is."""
    if len(low.sizes) != len(high.sizes):
        # Code that takes other ways for other sizes: what cannot be paired keeps its size.
        return high
    sizes = (round(a + (b - a) * grown) for a, b in zip(low.sizes, high.sizes, strict=True))
    return replace(low, sizes=tuple(sizes))


def gaps(traces: Sequence[Trace], weights: Sequence[int], moments: Sequence[int]) -> int:
    """Bytes of a heap beyond those of the tensors on it when both are largest.

    Args:
        traces: steps that take turns.
        weights: bytes of each, there from the beginning.
        moments: bytes of what the optimiser makes in the first turn and keeps.
    """
    heap, left = Heap(), _Left(set(), ())
    for number, size in enumerate(weights):
        heap.take(("weight", number), size)
    for turn in range(_TURNS):
        for number, trace in enumerate(traces):
            left = _play(heap, trace, (turn, number), left)
        for number, size in enumerate(moments if turn == 0 else ()):
            heap.take(("moment", number), size)
    return heap.extent - heap.largest_use


@dataclass(frozen=True)
class _Left:
    """What a step leaves behind: names of all of it, and of the streams' memories among it."""

    names: set[Hashable]
    streams: tuple[Hashable, ...]


def _play(heap: Heap, trace: Trace, step: Hashable, left: _Left) -> _Left:
    """Take and free as the step does, among what the step before left."""
    inherited = dict(zip(trace.before, left.streams, strict=False))
    names: set[Hashable] = set()
    gradients = left.names - set(left.streams)
    parts = (trace.changes[: trace.began], gradients), (trace.changes[trace.began :], left.names)
    for changes, gone in parts:
        for index in changes:
            name, old = (step, index), inherited.get(index)
            if trace.sizes[index] < _LEAST_BYTES:
                continue
            if name in names:
                heap.free(name)
                names.remove(name)
                continue
            if old in left.names:
                heap.rename(old, name)
                left.names.remove(old)
            else:
                heap.take(name, trace.sizes[index])
            names.add(name)
        for other in sorted(gone, key=heap.place):
            heap.free(other)
        left.names.difference_update(gone)
    return _Left(names, tuple((step, index) for index in trace.after))
