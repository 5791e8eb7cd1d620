"""Taus against scipy, ceilings against a known truth, intervals against a plain bootstrap."""

import itertools

import numpy as np
import pytest
from scipy.stats import kendalltau

from benchmarks.ranking import Resamples, Tau, ceiling_tau, ranking, weighted_taus
from nas.statistics.intervals import smallest_visible


def test_a_weight_is_how_often_a_thing_stands_there() -> None:
    generator = np.random.default_rng(1)
    one_N, other_N = generator.normal(size=(2, 9))
    weight_BN = generator.integers(4, size=(100, 9)).astype(float)
    for weight_N, tau in zip(weight_BN, weighted_taus(one_N, other_N, weight_BN), strict=True):
        rows = np.repeat(np.arange(9), weight_N.astype(int))
        assert tau == pytest.approx(kendalltau(one_N[rows], other_N[rows]).statistic, nan_ok=True)


@pytest.mark.parametrize(("layouts", "seeds", "noise"), [(24, 2, 0.8), (64, 2, 0.3)])
def test_the_ceiling_is_what_the_truth_reaches(layouts: int, seeds: int, noise: float) -> None:
    generator = np.random.default_rng(layouts)
    found, reached = [], []
    for _ in range(60):
        true_N = generator.normal(size=layouts)
        nats_SN = 4 + true_N + noise * generator.normal(size=(seeds, layouts))
        found.append(ceiling_tau(nats_SN, 50))
        reached.append(kendalltau(true_N, nats_SN.mean(axis=0)).statistic)
    # Standard errors of both means are below 0.015.
    assert np.mean(found) == pytest.approx(np.mean(reached), abs=0.04)


def test_without_noise_the_ceiling_is_1_and_without_differences_0() -> None:
    true_N = np.arange(12.0)
    assert ceiling_tau(np.stack([true_N, true_N])) == pytest.approx(1)
    assert ceiling_tau(np.stack([true_N, -true_N])) == 0
    assert ceiling_tau(np.ones((2, 12))) == 0


def layouts(n: int, noise: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nats alone of two seeds, nats by a SuperNet of so much noise, parameters that say little."""
    generator = np.random.default_rng(seed)
    true_N = generator.normal(size=n)
    alone_SN = true_N + 0.1 * generator.normal(size=(2, n))
    return alone_SN, true_N + noise * generator.normal(size=n), generator.normal(size=n)


@pytest.mark.slow
def test_a_good_supernet_is_better_than_trivial_predictors() -> None:
    alone_SN, supernet_N, parameters_N = layouts(24, 0.1)
    found = ranking(alone_SN, supernet_N, {"parameters": parameters_N, "FLOPs": np.ones(24)})
    assert found.verdict.startswith(
        "the SuperNet ranks better than the best trivial predictor, fewer parameters (the "
        f"smallest visible difference is {found.visible:.3f}): tau "
    )
    assert found.trivial["FLOPs"] == Tau(None)
    assert found.best == "parameters"
    tau = kendalltau(supernet_N, alone_SN.mean(axis=0)).statistic
    trivial = abs(kendalltau(parameters_N, alone_SN.mean(axis=0)).statistic)
    assert found.supernet.tau == pytest.approx(tau)
    assert found.trivial["parameters"].tau == pytest.approx(trivial)
    assert found.difference.tau == pytest.approx(tau - trivial)
    assert found.agreement.tau == pytest.approx(kendalltau(*alone_SN).statistic)
    assert found.ceiling == ceiling_tau(alone_SN)


def test_a_supernet_that_knows_no_more_than_flops_is_told_so() -> None:
    """The best trivial predictor is the baseline, in the direction that fits."""
    alone_SN, supernet_N, latency_N = layouts(24, 0.3)
    flops_N = -alone_SN.mean(axis=0) + 0.3 * np.random.default_rng(9).normal(size=24)
    found = ranking(alone_SN, supernet_N, {"latency": latency_N, "FLOPs": flops_N})
    assert (found.best, found.direction["FLOPs"]) == ("FLOPs", "more")
    assert found.trivial["FLOPs"].tau > abs(found.trivial["latency"].tau)
    assert found.difference.tau == pytest.approx(found.supernet.tau - found.trivial["FLOPs"].tau)
    width = found.difference.tau - found.difference.low
    assert found.visible == smallest_visible(width, 24)
    assert found.verdict.startswith(
        "no difference shown between the SuperNet and the best trivial predictor, more FLOPs (the "
        f"smallest visible one is {found.visible:.3f}): tau +0."
    )
    worse = ranking(alone_SN, -supernet_N, {"FLOPs": flops_N})
    assert "ranks worse than" in worse.verdict


def plain_taus(one_N: np.ndarray, other_N: np.ndarray, weight_BN: np.ndarray) -> np.ndarray:
    rows = [np.repeat(np.arange(len(one_N)), weight_N.astype(int)) for weight_N in weight_BN]
    return np.array([kendalltau(one_N[row], other_N[row]).statistic for row in rows])


@pytest.mark.parametrize("noise", [0.2, 3.0])
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


def test_agreement_is_the_mean_over_pairs_of_three_seeds() -> None:
    generator = np.random.default_rng(5)
    noise_SN = np.array([[0.1], [0.5], [2.0]]) * generator.normal(size=(3, 12))
    rows_SN = generator.normal(size=12) + noise_SN
    resamples = Resamples.of(12, 200)
    found = resamples.mean_tau(rows_SN)
    pairs = list(itertools.combinations(rows_SN, 2))
    assert found.tau == pytest.approx(np.mean([kendalltau(*pair).statistic for pair in pairs]))
    taus_B = np.mean([plain_taus(*pair, resamples.weight_BN) for pair in pairs], axis=0)
    assert (found.low, found.high) == pytest.approx(np.quantile(taus_B, [0.025, 0.975]))


@pytest.mark.slow
def test_few_layouts_give_no_verdict_and_without_a_trivial_predictor_chance_is_the_baseline() -> (
    None
):
    alone_SN, supernet_N, parameters_N = layouts(19, 0.1)
    found = ranking(alone_SN[:1], supernet_N, {"parameters": parameters_N})
    assert found.verdict == "no verdict possible (n = 19 layouts; 20 are the least)"
    assert (found.agreement, found.ceiling) == (None, None)
    alone_SN, supernet_N, noise_N = layouts(20, 0.1)
    same = {"FLOPs": np.ones(20)}
    assert "better than chance" in ranking(alone_SN, supernet_N, same).verdict
    said = ranking(alone_SN, noise_N, same).verdict
    assert "no difference shown between the SuperNet and chance" in said
    assert "worse than chance" in ranking(alone_SN, -supernet_N, same).verdict
