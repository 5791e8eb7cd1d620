"""The objectives of a sweep: which take training, and Pareto dominance; all are minimised."""

from collections.abc import Sequence

# In bits per byte; the others say what these are bought with.
LEARNED = ("retrained", "onehot")


def dominates(values: Sequence[float], other: Sequence[float]) -> bool:
    """Whether `values` are nowhere worse than the other ones, and better somewhere."""
    pairs = list(zip(values, other, strict=True))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)
