"""Student's t for whole degrees of freedom, and p values of several comparisons at once.

Without scipy, which is needed for some sweeps alone.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

# What a p value must lie below for a difference to be shown.
LEVEL = 0.05
_HALVINGS = 60


def students_p(t: float, freedom: int) -> float:
    """Two-sided p value of Student's t (Abramowitz and Stegun 1964, 26.7.3 and 26.7.4)."""
    angle = math.atan(abs(t) / math.sqrt(freedom))
    sine, cosine, is_odd = math.sin(angle), math.cos(angle), freedom % 2
    total, term = 0.0, cosine if is_odd else 1.0
    for power in range(is_odd, freedom - 1, 2):
        total += term
        term *= cosine**2 * (power + 1) / (power + 2)
    within = (angle + sine * total) * 2 / math.pi if is_odd else sine * total
    return max(0.0, 1.0 - within)


@lru_cache(maxsize=1024)
def students_t(p: float, freedom: int) -> float:
    """The t of a two-sided p value above 0."""
    low, high = 0.0, 1.0
    while students_p(high, freedom) > p:
        high *= 2
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if students_p(middle, freedom) > p else (low, middle)
    return (low + high) / 2


def holm(values: Sequence[float], planned: int) -> list[float]:
    """Adjusted p values of some of the planned comparisons, in the order of `values` (Holm 1979).

    Those that are not made yet count as the last, so that no adjusted value grows when they are.
    """
    assert planned >= len(values)
    adjusted, least = [0.0] * len(values), 0.0
    for rank, number in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        least = max(least, min(1.0, (planned - rank) * values[number]))
        adjusted[number] = least
    return adjusted
