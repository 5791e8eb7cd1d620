"""Taus against scipy, intervals against a plain bootstrap, and what is said."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import kendalltau

from nas.derivation.base import Networks
from nas.statistics.intervals import smallest_visible
from nas.statistics.kendall import Resamples, Tau, ceiling_tau, ranking
from nas.tabular.sampling import equal_layouts, free_layouts, median_layout, nearest_layout
from tests import tiny


def test_tau_is_undefined_where_all_is_alike() -> None:
    assert Resamples.of(5).tau(np.ones(5), np.arange(5.0)) == Tau(None)
    assert str(Tau(None)) == "undefined (all alike)"


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
    assert found.verdict.startswith(
        "the SuperNet ranks better than the best trivial predictor, fewer parameters (the "
        f"smallest visible difference is {found.visible:.3f}): tau "
    )
    assert found.trivial["FLOPs"] == Tau(None)
    assert found.best == "parameters"
    assert found.difference is not None
    tau = kendalltau(supernet_N, alone_SN.mean(axis=0)).statistic
    trivial = abs(kendalltau(parameters_N, alone_SN.mean(axis=0)).statistic)
    assert found.supernet.tau == pytest.approx(tau)
    assert found.trivial["parameters"].tau == pytest.approx(trivial)
    assert found.difference.tau == pytest.approx(tau - trivial)
    assert found.agreement is not None
    assert found.agreement.tau == pytest.approx(kendalltau(*alone_SN).statistic)
    assert found.ceiling == ceiling_tau(alone_SN)


def test_a_supernet_that_knows_no_more_than_flops_is_told_so() -> None:
    alone_SN, supernet_N, _ = layouts(24, 0.3)
    flops_N = -alone_SN.mean(axis=0) + 0.3 * np.random.default_rng(9).normal(size=24)
    found = ranking(alone_SN, supernet_N, {"FLOPs": flops_N})
    assert found.direction == {"FLOPs": "more"}
    assert found.difference is not None
    assert found.difference.tau is not None
    assert found.difference.low is not None
    width = found.difference.tau - found.difference.low
    assert found.visible == smallest_visible(width, 24)
    assert found.verdict.startswith(
        "the SuperNet and the best trivial predictor, more FLOPs: no difference shown (the "
        f"smallest visible one is {found.visible:.3f}): tau +0."
    )
    worse = ranking(alone_SN, -supernet_N, {"FLOPs": flops_N})
    assert "ranks worse than" in worse.verdict


def test_a_wide_interval_about_0_is_no_verdict_against_it() -> None:
    alone_SN, supernet_N, parameters_N = layouts(20, 0.7, seed=2)
    found = ranking(alone_SN, supernet_N, {"parameters": parameters_N})
    assert found.difference is not None
    assert found.difference.low is not None
    assert found.difference.high is not None
    assert found.difference.low < -0.3 < 0 < found.difference.high
    assert "no difference shown (the smallest visible one is " in found.verdict


def plain_taus(one_N: np.ndarray, other_N: np.ndarray, weight_BN: np.ndarray) -> np.ndarray:
    rows = [np.repeat(np.arange(len(one_N)), weight_N.astype(int)) for weight_N in weight_BN]
    return np.array([kendalltau(one_N[row], other_N[row]).statistic for row in rows])


@pytest.mark.parametrize("noise", [0.2, 0.8, 3.0])
def test_the_lead_is_over_the_best_rival_and_allows_for_the_choice(noise: float) -> None:
    alone_SN, supernet_N, _ = layouts(14, noise)
    truth_N = alone_SN.mean(axis=0)
    generator = np.random.default_rng(3)
    rivals = [-truth_N + scale * generator.normal(size=14) for scale in (1, 2, 9)]
    resamples = Resamples.of(14, 100)
    found = resamples.lead(supernet_N, rivals, truth_N)
    signed = [sign * rival_N for rival_N in rivals for sign in (1, -1)]
    own = kendalltau(supernet_N, truth_N).statistic
    lead_K = own - np.array([kendalltau(each_N, truth_N).statistic for each_N in signed])
    own_B = plain_taus(supernet_N, truth_N, resamples.weight_BN)
    lead_KB = own_B - [plain_taus(each_N, truth_N, resamples.weight_BN) for each_N in signed]
    assert found.tau == pytest.approx(lead_K.min())
    assert found.low == pytest.approx(np.quantile(lead_KB, 0.025, axis=1).min())
    gained_B = (lead_K[:, None] - lead_KB).max(axis=0)
    assert found.high == pytest.approx(min(1, lead_K.min() + np.quantile(gained_B, 0.975)))


def test_a_lead_is_at_most_1() -> None:
    alone_SN, supernet_N, noise_N = layouts(20, 0.05)
    found = Resamples.of(20, 500).lead(supernet_N, [noise_N], alone_SN.mean(axis=0))
    assert found.high == 1


def test_the_best_trivial_predictor_is_the_opponent() -> None:
    alone_SN, supernet_N, noise_N = layouts(24, 0.3)
    near_N = alone_SN.mean(axis=0) + 0.4 * np.random.default_rng(4).normal(size=24)
    found = ranking(alone_SN, supernet_N, {"latency": noise_N, "FLOPs": near_N})
    assert found.best == "FLOPs"
    assert found.difference is not None
    alone_N = alone_SN.mean(axis=0)
    less = kendalltau(supernet_N, alone_N).statistic - kendalltau(near_N, alone_N).statistic
    assert found.difference.tau == pytest.approx(less)


def test_agreement_is_the_mean_over_pairs_of_three_seeds() -> None:
    generator = np.random.default_rng(5)
    rows_SN = generator.normal(size=12) + np.array([[0.1], [0.5], [2.0]]) * generator.normal(
        size=(3, 12)
    )
    resamples = Resamples.of(12, 200)
    found = resamples.mean_tau(rows_SN)
    pairs = list(itertools.combinations(rows_SN, 2))
    assert found.tau == pytest.approx(np.mean([kendalltau(*pair).statistic for pair in pairs]))
    taus_B = np.mean([plain_taus(*pair, resamples.weight_BN) for pair in pairs], axis=0)
    assert (found.low, found.high) == pytest.approx(np.quantile(taus_B, [0.025, 0.975]))


def test_agreement_leaves_out_a_pair_that_has_none() -> None:
    rows_SN = np.array([[1.0, 2, 3, 4], [1.0, 2, 4, 3], [5.0, 5, 5, 5]])
    found = Resamples.of(4).mean_tau(rows_SN)
    assert found.tau == pytest.approx(2 / 3)
    assert found.low is not None
    assert math.isfinite(found.low)


def test_a_trivial_predictor_has_the_direction_that_fits() -> None:
    alone_SN, supernet_N, _ = layouts(12, 0.5)
    more = alone_SN.mean(axis=0)
    found = ranking(alone_SN, supernet_N, {"parameters": more})
    assert found.direction == {"parameters": "fewer"}
    assert found.trivial["parameters"].tau == pytest.approx(1)
    other = ranking(alone_SN, supernet_N, {"parameters": -more})
    assert other.direction == {"parameters": "more"}
    assert other.trivial["parameters"].tau == pytest.approx(1)


def test_few_layouts_give_no_verdict_and_one_seed_no_agreement() -> None:
    alone_SN, supernet_N, parameters_N = layouts(19, 0.1)
    found = ranking(alone_SN[:1], supernet_N, {"parameters": parameters_N})
    assert found.verdict == "no verdict possible (n = 19 layouts; 20 are the least)"
    assert found.agreement is None
    assert found.ceiling is None


def test_without_a_trivial_predictor_chance_is_the_opponent() -> None:
    alone_SN, supernet_N, noise_N = layouts(20, 0.1)
    same = {"FLOPs": np.ones(20)}
    assert "better than chance" in ranking(alone_SN, supernet_N, same).verdict
    chance = ranking(alone_SN, noise_N, same)
    assert chance.verdict.startswith(
        "the SuperNet and chance: no difference shown (the smallest visible one is 0."
    )
    assert "worse than chance" in ranking(alone_SN, -supernet_N, same).verdict


def networks_of(*names: str, tie_slots: int | None = None) -> Networks:
    return Networks(tiny.candidates(*names), tie_slots)


THREE = networks_of("attention", "dense", "identity")
NO_TWINS = Networks(
    tiny.candidates("attention", "dense", {"kind": "dense", "label": "wide", "d_ffn": 24}), None
)


def test_free_layouts_are_different_and_uniform() -> None:
    drawn = free_layouts(NO_TWINS, 6, 12, 0)
    assert drawn == free_layouts(NO_TWINS, 6, 12, 0) != free_layouts(NO_TWINS, 6, 12, 1)
    every = set(itertools.product(range(3), repeat=2))
    assert set(free_layouts(NO_TWINS, 2, 100, 0)) == every
    for slots in (5, 12):
        drawn = [choice for seed in range(60) for choice in free_layouts(NO_TWINS, slots, 10, seed)]
        count_C = np.bincount(np.array(drawn).ravel(), minlength=3)
        total = count_C.sum()
        assert np.abs(count_C / total - 1 / 3).max() < 5 * math.sqrt(2 / 9 / total)


@pytest.mark.parametrize(("slots", "count"), [(2, 7), (6, 127), (12, 200)])
def test_no_draw_holds_a_network_twice(slots: int, count: int) -> None:
    """Of six slots there are 729 layouts and 1 + 2 + 4 + ... + 64 networks."""
    for seed in range(3):
        free = free_layouts(THREE, slots, count, seed)
        assert len({THREE.of(choice) for choice in free}) == len(free) == count
        target = (0,) + (2,) * (slots - 1)
        equal = equal_layouts(target, THREE, 20, seed, lambda choice: choice.count(0) == 1)
        assert len({THREE.of(choice) for choice in equal}) == len(equal)
    assert len(free_layouts(THREE, 6, 500, 0)) == 127


def test_rearrangements_of_one_network_are_drawn_once() -> None:
    """Of one block among 24 slots there is one network, and 24 layouts."""
    target = (0,) + (2,) * 23
    assert len(equal_layouts(target, THREE, 5, 0, lambda choice: False)) == 1
    shared = networks_of("attention", "dense", "identity", tie_slots=2)
    pair = (0, 0) + (2,) * 22
    drawn = equal_layouts(pair, shared, 5, 0, lambda choice: False)
    assert len(drawn) == 3, "both by one module, or one by each in either order"


@pytest.mark.parametrize("slots", [6, 14])
def test_equal_layouts_cost_about_as_much(slots: int) -> None:
    price = [5.0, 3.0, 0.0]

    def cost(choice: tuple[int, ...]) -> float:
        return 10 + sum(price[k] for k in choice)

    target = tuple([0, 1, 2] * slots)[:slots]
    found = equal_layouts(
        target, THREE, 6, 0, lambda choice: abs(cost(choice) / cost(target) - 1) <= 0.03
    )
    assert len({THREE.of(choice) for choice in found}) == 6
    assert all(abs(cost(choice) / cost(target) - 1) <= 0.03 for choice in found)


def test_a_cost_that_draws_do_not_hit_is_met_by_rearrangements() -> None:
    target = (0,) * 18 + (1,) * 2
    found = equal_layouts(target, THREE, 12, 0, lambda choice: choice.count(0) == 18)
    assert len(set(found)) == 12
    assert all(choice.count(0) == 18 for choice in found)


def test_the_median_layout_has_half_of_all_below_it() -> None:
    price = [5.0, 3.0, 0.0]

    def cost(choice: tuple[int, ...]) -> float:
        return sum(price[k] for k in choice)

    found = median_layout(3, 6, 0, cost)
    every = sorted(cost(choice) for choice in itertools.product(range(3), repeat=6))
    assert every[len(every) * 45 // 100] <= cost(found) <= every[len(every) * 55 // 100]


@pytest.mark.parametrize(("candidates", "slots"), [(3, 5), (8, 24)])
def test_the_nearest_layout_costs_what_is_asked_for(candidates: int, slots: int) -> None:
    price = np.random.default_rng(0).uniform(size=candidates).tolist()

    def cost(choice: tuple[int, ...]) -> float:
        return math.fsum(price[k] for k in choice)

    for target in (slots * min(price), slots * sum(price) / candidates, slots * max(price)):
        found = nearest_layout(candidates, slots, 0, cost, target)
        assert len(found) == slots
        if candidates**slots < 1000:
            every = itertools.product(range(candidates), repeat=slots)
            assert abs(cost(found) - target) == pytest.approx(
                min(abs(cost(choice) - target) for choice in every)
            )
        else:
            assert cost(found) == pytest.approx(target, rel=0.01)
