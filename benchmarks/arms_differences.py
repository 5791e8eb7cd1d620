"""Differences between the trainings of two arms, with their p values."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats


class Difference(NamedTuple):
    """A difference of means, the half-width of its 95% interval, and its two-sided p value."""

    mean_nats: float
    half_nats: float
    p: float


def welch(ones: Sequence[float], others: Sequence[float]) -> Difference | None:
    """The mean of `ones` less that of `others`, each with a deviation of its own (Welch 1947).

    None with fewer than two trainings on a side. One deviation for all arms would be wrong: that of
    a layout whose seeds begin to copy sooner or later is far larger than that of the others.
    """
    if min(len(ones), len(others)) < 2:
        return None
    test = stats.ttest_ind(ones, others, equal_var=False)
    low, high = test.confidence_interval(0.95)
    return Difference(float(np.mean(ones) - np.mean(others)), (high - low) / 2, float(test.pvalue))
