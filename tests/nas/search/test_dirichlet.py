"""Dirichlet weights: their law, their quantiles against scipy, their gradient at frozen noise."""

import pytest
import scipy.special
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from nas.search.estimators import dirichlet, dirichlet_weights, gumbel_noise, log_gamma_quantile
from tests import tiny

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


def test_small_tau_draws_one_hot_by_pi_and_large_tau_draws_pi() -> None:
    alpha_NC = torch.tensor([[1.0, 0.0, -1.0]]).repeat(5000, 1)
    noise_NC = gumbel_noise(0, 1, 5000, 3)
    hard_NC = dirichlet_weights(alpha_NC, noise_NC, 1e-4)
    assert float((hard_NC.max(1).values > 0.99).float().mean()) > 0.99
    pi_C = torch.softmax(alpha_NC[0], 0)
    share_C = one_hot(hard_NC.argmax(1), 3).float().mean(0)
    assert float((share_C - pi_C).abs().max()) < 5 * 0.5 / 5000**0.5
    near_NC = dirichlet_weights(alpha_NC[:100], noise_NC[:100], 1e5)
    assert float((near_NC - pi_C).abs().max()) < 0.02


@pytest.mark.parametrize("tau", [0.3, 1.0])
def test_law_7_dirichlet_the_gradient_of_alpha_equals_finite_differences(tau: float) -> None:
    net, batch = tiny.supernet(), tiny.batch()
    alpha_LC = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)
    noise_LC = gumbel_noise(0, 1, 3, 3).double()

    def loss_at(alpha: Tensor) -> Tensor:
        mix = dirichlet(alpha, noise_LC, tau)
        h_BTD, _, _ = net(batch.input_BT, net.initial_state(2), mix)
        return net.nll(h_BTD, batch.target_BT).mean()

    (grad_LC,) = torch.autograd.grad(loss_at(alpha_LC), [alpha_LC])
    for place in range(9):
        step_LC = 1e-6 * one_hot(torch.tensor(place), 9).double().reshape(3, 3)
        with torch.no_grad():
            slope = float(loss_at(alpha_LC + step_LC) - loss_at(alpha_LC - step_LC)) / 2e-6
        assert slope == pytest.approx(float(grad_LC.flatten()[place]), abs=1e-7)
    assert float(grad_LC.abs().max()) > 1e-3


def test_a_draw_touches_no_generator_and_repeats_itself() -> None:
    before = torch.get_rng_state()
    alpha_LC = torch.randn(4, 3, generator=torch.Generator().manual_seed(1))
    draws = [dirichlet_weights(alpha_LC, gumbel_noise(3, 5, 4, 3), 0.5) for _ in range(2)]
    assert torch.equal(*draws)
    assert draws[0].dtype == torch.float32
    assert torch.equal(before, torch.get_rng_state())
