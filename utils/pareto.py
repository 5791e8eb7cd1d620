"""Pareto dominance of objectives, all of which are minimised."""

from collections.abc import Hashable, Sequence


def dominates(values: Sequence[float], other: Sequence[float]) -> bool:
    """Whether `values` are nowhere worse than the other ones, and better somewhere."""
    pairs = list(zip(values, other, strict=True))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


def unbeaten(values: Sequence[Sequence[float]]) -> list[int]:
    """The places of those that no other one dominates."""
    return [
        place
        for place, one in enumerate(values)
        if not any(dominates(other, one) for other in values)
    ]


def different(kinds: Sequence[Hashable], values: Sequence[Sequence[float]]) -> list[int]:
    """The places without those that are of an earlier one's kind and have its values."""
    once: dict[tuple[Hashable, ...], int] = {}
    for place, (kind, of) in enumerate(zip(kinds, values, strict=True)):
        once.setdefault((kind, *of), place)
    return list(once.values())
