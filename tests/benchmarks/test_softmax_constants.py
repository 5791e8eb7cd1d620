"""The fit of the constants, on times that follow the formula."""

from itertools import product

import numpy as np
import pytest

from benchmarks.softmax_constants import D_MODEL, ROWS, TOKENS, WIDTHS, WORDS, fit, time_tail
from model.cutoffs import ClusterCosts, CostConstants


@pytest.mark.parametrize("threshold", [0.0, 1e5])
def test_the_fit_finds_the_constants_that_made_the_times(threshold: float) -> None:
    known = CostConstants(3e-4, 5e-11, 7e-9, threshold)
    sizes = np.array(list(product(ROWS, WORDS, WIDTHS)))
    seconds = []
    for rows, words, width in sizes:
        # A head of one word has the other tokens, so that the tail has just these rows.
        count_V = np.array([TOKENS - rows, *[rows / words] * words])
        costs = ClusterCosts(count_V, D_MODEL, (int(width),), TOKENS, known)
        seconds.append(costs.tail(0, 1, 1 + words))
    *found, error = fit(sizes, np.array(seconds))
    assert found == pytest.approx([3e-4, 5e-11, 7e-9, threshold], rel=1e-6)
    assert error < 1e-9


def test_a_tail_is_timed() -> None:
    assert 0 < time_tail(3, 5, 2, repeats=1, device="cpu") < 60
