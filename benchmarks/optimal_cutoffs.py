"""Optimal cutoffs of an adaptive softmax (Grave et al. 2017, section 4), by divide and conquer.

The ids, sorted by falling count, are cut into a head and J tails so that one training step over B
tokens costs least. A cluster of n words and width d that holds the part m of the tokens costs

    launch + a * max(threshold, B m n d) + logit * B m n + a * B m D d

The head has m = 1, since every token pays for it, a further row per tail, and no projection unless
it is narrower than the model.
Differs from the paper: projections and the softmax over the logits are paid for, and the head must
hold a least part of the tokens; it would else be a handful of words, as narrow vectors of the rare
ones cost nothing in this sum.

All terms are Monge in the two ends of a cluster, so the best start of a cluster never falls as its
end grows, and each layer of the dynamic programme needs O(V log V) evaluations instead of O(V^2).

V vocabulary   W = V + 1 ends of a cluster   J tails
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Numbers = Any  # an integer, or an array of them


@dataclass(frozen=True)
class CostConstants:
    """What a cluster costs in one forward and backward pass.

    Attributes:
        launch_s: seconds, however little is computed.
        multiply_add_s: seconds of one multiply-add of the forward pass, its backward pass included.
        logit_s: seconds of the softmax over one logit.
        threshold: multiply-adds of a logit product below which it gets no cheaper.
    """

    launch_s: float
    multiply_add_s: float
    logit_s: float
    threshold: float


# `python -m benchmarks.softmax_constants` on an AMD EPYC (Zen 4, 2 cores at 2.6 GHz), torch
# 2.13, one thread, float32.
MEASURED = CostConstants(launch_s=2.2e-4, multiply_add_s=5.7e-11, logit_s=6.2e-9, threshold=0.0)


@dataclass(frozen=True)
class ClusterCosts:
    """Seconds that each possible cluster takes of a training step over B `tokens`.

    The counts or probabilities never increase; `widths` are those of the tails, `head_width` is
    that of a head narrower than the model.
    """

    count_V: FloatArray
    d_model: int
    widths: tuple[int, ...]
    tokens: int
    constants: CostConstants
    head_width: int | None = None

    @cached_property
    def mass_W(self) -> FloatArray:
        """Part of the tokens in the first 0, 1, ..., V words."""
        sum_W = np.concatenate([[0.0], np.cumsum(self.count_V)])
        return sum_W / sum_W[-1]

    def head(self, end: Numbers) -> Any:
        """A head of the words below `end`."""
        known = self.constants
        logits = self.tokens * (end + len(self.widths))
        width = self.d_model if self.head_width is None else self.head_width
        products = np.maximum(known.threshold, logits * width)
        if self.head_width is not None:
            products = products + self.tokens * (self.d_model * width)
        return known.launch_s + known.multiply_add_s * products + known.logit_s * logits

    def tail(self, tail: int, start: Numbers, end: Numbers) -> Any:
        """Tail number `tail`, from 0, of the words from `start` to below `end`."""
        known, width = self.constants, self.widths[tail]
        rows = self.tokens * (self.mass_W[end] - self.mass_W[start])
        logits = rows * (end - start)
        products = np.maximum(known.threshold, logits * width) + rows * (self.d_model * width)
        return known.launch_s + known.multiply_add_s * products + known.logit_s * logits


def optimal_cutoffs(
    count_V: ArrayLike,
    *,
    d_model: int,
    widths: Sequence[int],
    tokens: int,
    least_head_mass: float,
    constants: CostConstants = MEASURED,
    head_width: int | None = None,
) -> tuple[int, ...]:
    """The first id of each tail, for which a training step costs least.

    Among cutoffs of equal cost, those with the smallest last one are taken, then with the smallest
    last but one, and so on. `count_V` says how often each word occurs, or how probable it is, the
    most frequent first; `tokens` are those of one training step. The head must hold the part
    `least_head_mass` of the tokens. ValueError: too few words for so many clusters.
    """
    count_V = np.asarray(count_V, dtype=np.float64)
    costs = ClusterCosts(count_V, d_model, tuple(widths), tokens, constants, head_width)
    tails, vocabulary = len(costs.widths), len(count_V)
    # A head of the first words that hold the mass; the sum may miss it by its rounding.
    first = max(1, int(np.searchsorted(costs.mass_W, least_head_mass * (1 - 1e-12))))
    if first + tails > vocabulary:
        raise ValueError(
            f"{vocabulary} words, of which the first {first} hold {least_head_mass:g} of the "
            f"tokens, leave no word for some of {tails} tails; use fewer clusters"
        )
    if not tails:
        return ()
    end_W = np.arange(vocabulary + 1)
    best_W, starts = costs.head(end_W), []
    for tail in range(tails - 1):
        first += 1
        last = vocabulary - (tails - 1 - tail)
        best_W, start_W = _best_starts(best_W, costs, tail, first, last)
        starts.append(start_W)
    start = np.arange(first, vocabulary)
    value_S = best_W[start] + costs.tail(tails - 1, start, vocabulary)
    cutoffs = [int(start[value_S.argmin()])]
    for start_W in reversed(starts):
        cutoffs.append(int(start_W[cutoffs[-1]]))
    return tuple(reversed(cutoffs))


def _best_starts(
    before_W: FloatArray, costs: ClusterCosts, tail: int, first: int, last: int
) -> tuple[FloatArray, IntArray]:
    """For each end of a tail from `first` to `last` the least cost and the smallest start of it.

    `before_W` has the least cost of what is before a start. Starts go from `first - 1` to below the
    end. The ends are halved level by level; all ends of a level are evaluated at once, each only
    between the best starts of its neighbours above.
    """
    best_W = np.full(last + 1, np.inf)
    start_W = np.zeros(last + 1, dtype=np.int64)
    low_N, high_N = np.array([first]), np.array([last])
    least_N, most_N = np.array([first - 1]), np.array([last - 1])
    while len(low_N):
        middle_N = (low_N + high_N) // 2
        length_N = np.minimum(most_N, middle_N - 1) - least_N + 1
        offset_N = np.cumsum(length_N) - length_N
        start = np.arange(length_N.sum()) + np.repeat(least_N - offset_N, length_N)
        cost = before_W[start] + costs.tail(tail, start, np.repeat(middle_N, length_N))
        best_N = np.minimum.reduceat(cost, offset_N)
        hit = np.flatnonzero(cost == np.repeat(best_N, length_N))
        start_N = start[hit[np.searchsorted(hit, offset_N)]]
        best_W[middle_N], start_W[middle_N] = best_N, start_N
        low_N, high_N, least_N, most_N = (
            np.concatenate(pair)
            for pair in (
                (low_N, middle_N + 1),
                (middle_N - 1, high_N),
                (least_N, start_N),
                (start_N, most_N),
            )
        )
        left = low_N <= high_N
        low_N, high_N, least_N, most_N = low_N[left], high_N[left], least_N[left], most_N[left]
    return best_W, start_W
