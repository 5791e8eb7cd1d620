"""Effects of a slot's candidate, and alpha's gradient from discrete losses, on known losses."""

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks import supernet_against_table as module
from model import Mix

LOSSES = dict(
    zip(itertools.product((0, 1), repeat=3), np.random.default_rng(0).normal(size=8), strict=True)
)


def loss(mix: Mix) -> Tensor:
    return torch.tensor(LOSSES[tuple(k for ((k, _),) in mix)])


def test_an_effect_is_the_difference_of_two_means() -> None:
    layouts = ["".join("ad"[k] for k in choice) for choice in LOSSES]
    found_L = module.effects(layouts, np.array(list(LOSSES.values())))
    for slot in range(3):
        means = [np.mean([v for key, v in LOSSES.items() if key[slot] == k]) for k in (0, 1)]
        assert found_L[slot] == pytest.approx(means[0] - means[1])


def test_pairs_give_the_gradient_of_the_expected_loss() -> None:
    alpha_LC = torch.zeros(3, 2, dtype=torch.float64, requires_grad=True)
    pi_LC = torch.softmax(alpha_LC, 1)
    expected = sum(
        pi_LC[0, a] * pi_LC[1, b] * pi_LC[2, c] * value for (a, b, c), value in LOSSES.items()
    )
    (exact_LC,) = torch.autograd.grad(expected, [alpha_LC])
    drawn = torch.stack([module._by_pairs(loss, index, (3, 2)) for index in range(4000)])
    error_LC = drawn.std(0) / 4000**0.5
    assert float(((drawn.mean(0) - exact_LC).abs() / error_LC).max()) < 4
    assert float((error_LC / exact_LC.abs()).min()) < 0.2
