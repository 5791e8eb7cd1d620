"""Taus against scipy, intervals against a plain bootstrap, and what is said."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import kendalltau

from nas.layout_sample import equal_layouts, free_layouts
from nas.rank import Resamples, Tau, kendall, ranking


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
    assert Resamples.of(5).tau(np.ones(5), np.arange(5.0)) == Tau(None)
    assert str(Tau(None)) == "undefined (all alike)"


def test_a_resample_is_the_layouts_repeated() -> None:
    generator = np.random.default_rng(1)
    one_N, other_N = generator.normal(size=(2, 9))
    resamples = Resamples.of(9)
    taus_B = resamples.taus(one_N, other_N)
    for weight_N, tau in zip(resamples.weight_BN[:200], taus_B, strict=False):
        rows = np.repeat(np.arange(9), weight_N.astype(int))
        assert tau == pytest.approx(kendalltau(one_N[rows], other_N[rows]).statistic, nan_ok=True)


def test_the_interval_is_the_bootstraps() -> None:
    generator = np.random.default_rng(2)
    one_N = generator.normal(size=16)
    other_N = one_N + generator.normal(size=16)
    found = Resamples.of(16).tau(one_N, other_N)
    rows = [generator.integers(16, size=16) for _ in range(2000)]
    taus = [kendalltau(one_N[row], other_N[row]).statistic for row in rows]
    assert (found.low, found.high) == pytest.approx(np.nanquantile(taus, [0.025, 0.975]), abs=0.05)
    assert found == Resamples.of(16).tau(one_N, other_N)


def layouts(n: int, noise: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nats alone of two seeds, nats by a SuperNet of so much noise, parameters that say little."""
    generator = np.random.default_rng(seed)
    true_N = generator.normal(size=n)
    alone_SN = true_N + 0.1 * generator.normal(size=(2, n))
    return alone_SN, true_N + noise * generator.normal(size=n), generator.normal(size=n)


def test_a_good_supernet_is_better_than_trivial_predictors() -> None:
    alone_SN, supernet_N, parameters_N = layouts(24, 0.1)
    found = ranking(alone_SN, supernet_N, {"parameters": parameters_N, "FLOPs": np.ones(24)})
    assert found.verdict.startswith("the SuperNet ranks better than the best trivial predictor, ")
    assert found.trivial["FLOPs"] == Tau(None)
    assert found.best == "parameters"
    assert found.difference is not None
    tau = kendalltau(supernet_N, alone_SN.mean(axis=0)).statistic
    trivial = abs(kendalltau(parameters_N, alone_SN.mean(axis=0)).statistic)
    assert found.supernet.tau == pytest.approx(tau)
    assert found.trivial["parameters"].tau == pytest.approx(trivial)
    assert found.difference.tau == pytest.approx(tau - trivial)
    assert found.ceiling is not None
    assert found.ceiling.tau == pytest.approx(kendalltau(*alone_SN).statistic)


def test_a_supernet_that_knows_no_more_than_flops_is_told_so() -> None:
    alone_SN, supernet_N, _ = layouts(24, 0.3)
    flops_N = -alone_SN.mean(axis=0) + 0.3 * np.random.default_rng(9).normal(size=24)
    found = ranking(alone_SN, supernet_N, {"FLOPs": flops_N})
    assert found.direction == {"FLOPs": "more"}
    assert found.verdict.startswith(
        "the SuperNet ranks no better than the best trivial predictor, more FLOPs: tau +0."
    )
    worse = ranking(alone_SN, -supernet_N, {"FLOPs": flops_N})
    assert "ranks worse than" in worse.verdict


def test_a_trivial_predictor_has_the_direction_that_fits() -> None:
    alone_SN, supernet_N, _ = layouts(12, 0.5)
    more = alone_SN.mean(axis=0)
    found = ranking(alone_SN, supernet_N, {"parameters": more})
    assert found.direction == {"parameters": "fewer"}
    assert found.trivial["parameters"].tau == pytest.approx(1)
    other = ranking(alone_SN, supernet_N, {"parameters": -more})
    assert other.direction == {"parameters": "more"}
    assert other.trivial["parameters"].tau == pytest.approx(1)


def test_few_layouts_give_no_verdict_and_one_seed_no_ceiling() -> None:
    alone_SN, supernet_N, parameters_N = layouts(9, 0.1)
    found = ranking(alone_SN[:1], supernet_N, {"parameters": parameters_N})
    assert found.verdict == "no verdict possible (n = 9 layouts; 10 are the least)"
    assert found.ceiling is None


def test_without_a_trivial_predictor_chance_is_the_opponent() -> None:
    alone_SN, supernet_N, noise_N = layouts(20, 0.1)
    same = {"FLOPs": np.ones(20)}
    assert "better than chance" in ranking(alone_SN, supernet_N, same).verdict
    assert "no better than chance" in ranking(alone_SN, noise_N, same).verdict


def test_free_layouts_are_different_and_uniform() -> None:
    assert free_layouts(3, 6, 12, 0) == free_layouts(3, 6, 12, 0) != free_layouts(3, 6, 12, 1)
    every = set(itertools.product(range(3), repeat=2))
    assert set(free_layouts(3, 2, 100, 0)) == every
    for slots in (5, 12):
        drawn = [choice for seed in range(60) for choice in free_layouts(3, slots, 10, seed)]
        count_C = np.bincount(np.array(drawn).ravel(), minlength=3)
        total = count_C.sum()
        assert np.abs(count_C / total - 1 / 3).max() < 5 * math.sqrt(2 / 9 / total)


@pytest.mark.parametrize("slots", [6, 14])
def test_equal_layouts_cost_about_as_much(slots: int) -> None:
    price = [5.0, 3.0, 0.0]

    def cost(choice: tuple[int, ...]) -> float:
        return 10 + sum(price[k] for k in choice)

    target = tuple([0, 1, 2] * slots)[:slots]
    found = equal_layouts(
        target, 3, 12, 0, lambda choice: abs(cost(choice) / cost(target) - 1) <= 0.03
    )
    assert len(set(found)) == 12
    assert all(abs(cost(choice) / cost(target) - 1) <= 0.03 for choice in found)


def test_a_cost_that_draws_do_not_hit_is_met_by_rearrangements() -> None:
    target = (0,) * 18 + (1,) * 2
    found = equal_layouts(target, 3, 12, 0, lambda choice: choice.count(0) == 18)
    assert len(set(found)) == 12
    assert all(choice.count(0) == 18 for choice in found)
