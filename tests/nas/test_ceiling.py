"""What a perfect predictor reaches, against trainings whose truth is known."""

import numpy as np
import pytest
from scipy.stats import kendalltau

from nas.statistics.kendall import ceiling_tau


@pytest.mark.parametrize(
    ("layouts", "seeds", "noise"), [(24, 2, 0.3), (24, 2, 0.8), (40, 3, 0.8), (64, 2, 0.3)]
)
def test_it_is_what_the_truth_reaches(layouts: int, seeds: int, noise: float) -> None:
    generator = np.random.default_rng(layouts)
    found, reached = [], []
    for _ in range(60):
        true_N = generator.normal(size=layouts)
        nats_SN = 4 + true_N + noise * generator.normal(size=(seeds, layouts))
        found.append(ceiling_tau(nats_SN, 50))
        reached.append(kendalltau(true_N, nats_SN.mean(axis=0)).statistic)
    # Standard errors of both means are below 0.015.
    assert np.mean(found) == pytest.approx(np.mean(reached), abs=0.04)


def test_it_lies_above_the_agreement_of_two_trainings() -> None:
    generator = np.random.default_rng(0)
    nats_SN = generator.normal(size=24) + 0.8 * generator.normal(size=(2, 24))
    assert ceiling_tau(nats_SN) > kendalltau(*nats_SN).statistic + 0.1


def test_what_a_seed_does_to_all_alike_is_no_noise() -> None:
    generator = np.random.default_rng(0)
    nats_SN = generator.normal(size=24) + 0.3 * generator.normal(size=(2, 24))
    assert ceiling_tau(nats_SN + np.array([[0.0], [5.0]])) == pytest.approx(ceiling_tau(nats_SN))


def test_without_noise_it_is_1_and_without_differences_0() -> None:
    true_N = np.arange(12.0)
    assert ceiling_tau(np.stack([true_N, true_N])) == pytest.approx(1)
    assert ceiling_tau(np.stack([true_N, -true_N])) == 0
    assert ceiling_tau(np.ones((2, 12))) == 0


def test_the_same_figures_give_the_same_tau() -> None:
    nats_SN = np.random.default_rng(0).normal(size=(2, 12)) + np.arange(12) / 4
    assert ceiling_tau(nats_SN) == ceiling_tau(nats_SN.copy())
    assert ceiling_tau(nats_SN * 10 + 3) == pytest.approx(ceiling_tau(nats_SN))


@pytest.mark.parametrize("shape", [(1, 5), (2, 1)])
def test_one_seed_or_one_layout_says_nothing(shape: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=f"{shape[0]} training seeds of {shape[1]} layouts"):
        ceiling_tau(np.ones(shape))
