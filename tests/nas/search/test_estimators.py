"""Gumbel noise and what draws from it come to; Dirichlet weights against scipy."""

import math
from collections import Counter
from itertools import permutations

import pytest
import scipy.special
import torch
from torch import Tensor

from nas.search.estimators import (
    ESTIMATORS,
    dirichlet_weights,
    gumbel_noise,
    log_gamma_quantile,
    single_path,
    spos,
    two_path,
)


def test_noise_is_a_function_of_seed_and_draw_and_of_no_generator() -> None:
    noise_LC = gumbel_noise(1, 2, 3, 4)
    torch.manual_seed(99)
    before = torch.get_rng_state()
    assert torch.equal(noise_LC, gumbel_noise(1, 2, 3, 4))
    assert torch.equal(before, torch.get_rng_state())
    assert not torch.equal(noise_LC, gumbel_noise(1, 3, 3, 4))
    assert not torch.equal(noise_LC, gumbel_noise(2, 2, 3, 4))


def test_mean_and_variance_are_those_of_the_gumbel_distribution() -> None:
    noise = gumbel_noise(0, 0, 1000, 200).double()
    assert torch.isfinite(noise).all()
    assert abs(float(noise.mean()) - 0.5772156649) < 0.01
    assert abs(float(noise.var()) - math.pi**2 / 6) < 0.02


def test_hard_draws_follow_softmax_alpha_at_every_tau() -> None:
    alpha_LC = torch.tensor([[1.0, 0.0, -1.0]])
    pi_C = torch.softmax(alpha_LC[0], 0)
    for tau in (0.1, 5.0):
        draws = [
            single_path(alpha_LC, gumbel_noise(0, draw, 1, 3), tau)[0][0][0]
            for draw in range(20_000)
        ]
        share_C = torch.bincount(torch.tensor(draws), minlength=3) / len(draws)
        # Five standard deviations of a share of 20,000 draws.
        assert float((share_C - pi_C).abs().max()) < 5 * 0.5 / 20_000**0.5


def test_two_path_draws_from_pi_without_replacement_and_the_first_is_active() -> None:
    alpha_LC = torch.tensor([[1.0, 0.0, -1.0, 0.5]])
    pi_C = torch.softmax(alpha_LC[0].double(), 0).tolist()
    found: Counter[tuple[int, ...]] = Counter()
    for draw in range(20_000):
        terms = two_path(alpha_LC, gumbel_noise(0, draw, 1, 4), 0.7)[0]
        found[tuple(k for k, _ in terms)] += 1
        assert [float(weight) for _, weight in terms if weight is not None] == [1.0, 0.0]
    for first, second in permutations(range(4), 2):
        chance = pi_C[first] * pi_C[second] / (1 - pi_C[first])
        deviation = (chance * (1 - chance) / 20_000) ** 0.5
        assert abs(found[first, second] / 20_000 - chance) < 5 * deviation


def test_two_path_takes_the_one_candidate_of_a_slot_that_has_no_other() -> None:
    terms = two_path(torch.zeros(1, 1), gumbel_noise(0, 0, 1, 1), 1.0)[0]
    assert [(k, float(weight)) for k, weight in terms if weight is not None] == [(0, 1.0)]


def test_spos_draws_uniformly_whatever_alpha_is() -> None:
    alpha_LC = torch.tensor([[50.0, 0.0, -50.0]] * 2)
    draws = [spos(alpha_LC, gumbel_noise(0, draw, 2, 3), 1.0) for draw in range(20_000)]
    assert all(weight is None for terms in draws[0] for _, weight in terms)
    found = Counter(tuple(terms[0][0] for terms in mix) for mix in draws)
    assert len(found) == 9
    deviation = (8 / 81 / 20_000) ** 0.5
    assert all(abs(count / 20_000 - 1 / 9) < 5 * deviation for count in found.values())


@pytest.mark.parametrize("name", ["single_path", "two_path", "straight_through"])
def test_hard_draws_are_those_of_the_logits_where_relaxed_weights_tie(name: str) -> None:
    for draw in range(20):
        noise_LC = gumbel_noise(0, draw, 6, 3)
        mix = ESTIMATORS[name](torch.zeros(6, 3), noise_LC, 1e12)
        weights = [[0.0 if w is None else float(w) for _, w in terms] for terms in mix]
        found = [
            terms[max(range(len(terms)), key=own.__getitem__)][0]
            for terms, own in zip(mix, weights, strict=True)
        ]
        assert found == noise_LC.argmax(1).tolist()


SHAPES = [1e-3, 0.05, 0.3, 1.0, 4.0, 60.0]


def exponentials(count: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    drawn = torch.rand(count, generator=generator, dtype=torch.float64)
    return -torch.log(drawn.clamp(min=1e-12, max=1 - 1e-4))


@pytest.mark.parametrize("scale", SHAPES)
def test_the_quantiles_are_those_of_scipy(scale: float) -> None:
    shape = scale * (0.2 + torch.linspace(0, 1, 400, dtype=torch.float64))
    exponential = exponentials(400)
    log_z = log_gamma_quantile(shape, exponential)
    there = log_z > -600
    found = scipy.special.gammainc(shape[there].numpy(), log_z[there].exp().numpy())
    assert abs(found - torch.exp(-exponential[there]).numpy()).max() < 1e-12
    # Below the smallest double the series is 1: log P = c log z - log Gamma(c + 1).
    small, expected = shape[~there], -exponential[~there]
    torch.testing.assert_close(
        small * log_z[~there] - torch.lgamma(small + 1), expected, rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("scale", SHAPES)
def test_the_derivative_in_the_shape_equals_finite_differences(scale: float) -> None:
    shape = scale * (0.2 + torch.linspace(0, 1, 400, dtype=torch.float64)).requires_grad_()
    exponential = exponentials(400)
    (found,) = torch.autograd.grad(log_gamma_quantile(shape, exponential).sum(), [shape])
    with torch.no_grad():
        step = 1e-5 * shape
        above, below = (log_gamma_quantile(shape + sign * step, exponential) for sign in (1, -1))
        torch.testing.assert_close(found, (above - below) / (2 * step), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("tau", [0.1, 1.0, pytest.param(8.0, marks=pytest.mark.slow)])
def test_mean_and_variance_are_those_of_a_dirichlet_of_mean_pi(tau: float) -> None:
    alpha_C = torch.tensor([1.0, 0.0, -1.0], dtype=torch.float64)
    pi_C = torch.softmax(alpha_C, 0)
    noise_NC = gumbel_noise(0, 0, 20_000, 3).double()
    weight_NC = dirichlet_weights(alpha_C.expand(20_000, 3), noise_NC, tau)
    torch.testing.assert_close(weight_NC.sum(1), torch.ones(20_000).double())
    variance_C = pi_C * (1 - pi_C) / (3 * tau + 1)
    deviation_C = (variance_C / 20_000).sqrt()
    assert float(((weight_NC.mean(0) - pi_C).abs() / deviation_C).max()) < 5
    assert weight_NC.var(0).tolist() == pytest.approx(variance_C.tolist(), rel=0.05)
