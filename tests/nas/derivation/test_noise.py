"""The noise of trainings that were repeated, on made-up nats of a known deviation."""

import math

import numpy as np
import pytest

from nas.derivation.training import Training, training_noise


def results_of(nats_NS: np.ndarray) -> dict[Training, float]:
    return {
        Training(n, "full", s): float(nats) for (n, s), nats in np.ndenumerate(nats_NS)
    }  # fmt: skip


def test_it_is_the_deviation_of_what_networks_and_seeds_do_not_explain() -> None:
    generator = np.random.default_rng(0)
    noise_NS = generator.normal(0, 0.05, (400, 3))
    nats_NS = 4 + generator.normal(0, 1, (400, 1)) + generator.normal(0, 1, (1, 3)) + noise_NS
    found = training_noise(range(400), range(3), results_of(nats_NS), 0.01)
    assert found == pytest.approx(0.05, rel=0.05)
    assert training_noise(range(400), range(3), results_of(nats_NS), 0.2) == 0.2


def test_of_two_networks_with_two_seeds_one_difference_is_left() -> None:
    nats_NS = np.array([[4.0, 4.1], [4.0, 4.5]])
    assert training_noise((0, 1), (0, 1), results_of(nats_NS), 0.0) == pytest.approx(0.2)


def test_where_nothing_can_be_estimated_it_is_the_least() -> None:
    nats_NS = np.array([[4.0, math.inf], [4.0, 4.5]])
    assert training_noise((0, 1), (0, 1), results_of(nats_NS), 0.012) == 0.012
    assert training_noise((0, 1), (0,), results_of(nats_NS), 0.012) == 0.012
