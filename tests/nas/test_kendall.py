"""Tau-b against scipy."""

import numpy as np
import pytest
from scipy.stats import kendalltau

from nas.statistics.kendall import kendall, weighted_taus


@pytest.mark.parametrize("seed", range(30))
def test_tau_is_scipys_with_and_without_ties(seed: int) -> None:
    generator = np.random.default_rng(seed)
    one_N, other_N = generator.normal(size=(2, 15))
    if seed % 2:
        one_N = np.round(one_N)
    if seed % 3:
        other_N = np.round(one_N + other_N)
    assert kendall(one_N, other_N) == pytest.approx(kendalltau(one_N, other_N).statistic)


def test_tau_is_undefined_where_all_is_alike() -> None:
    assert kendall(np.ones(5), np.arange(5.0)) is None
    assert kendall(np.arange(5.0), np.ones(5)) is None


def test_a_weight_is_how_often_a_thing_stands_there() -> None:
    generator = np.random.default_rng(1)
    one_N, other_N = generator.normal(size=(2, 9))
    weight_BN = generator.integers(4, size=(100, 9)).astype(float)
    for weight_N, tau in zip(weight_BN, weighted_taus(one_N, other_N, weight_BN), strict=True):
        rows = np.repeat(np.arange(9), weight_N.astype(int))
        assert tau == pytest.approx(kendalltau(one_N[rows], other_N[rows]).statistic, nan_ok=True)
