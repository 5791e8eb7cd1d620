"""Gumbel noise: its law, its independence of any state, and what draws from it come to."""

import math

import torch

from nas.estimators import ESTIMATORS, relaxed, single_path
from nas.gumbel import gumbel_noise


def test_the_same_seed_and_draw_give_the_same_noise_and_others_do_not() -> None:
    noise_LC = gumbel_noise(1, 2, 3, 4)
    torch.manual_seed(99)
    assert torch.equal(noise_LC, gumbel_noise(1, 2, 3, 4))
    assert not torch.equal(noise_LC, gumbel_noise(1, 3, 3, 4))
    assert not torch.equal(noise_LC, gumbel_noise(2, 2, 3, 4))


def test_drawing_leaves_torchs_own_generator_alone() -> None:
    before = torch.get_rng_state()
    gumbel_noise(0, 0, 2, 3)
    assert torch.equal(before, torch.get_rng_state())


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


def test_relaxed_is_one_hot_for_small_tau_and_uniform_for_large() -> None:
    alpha_LC, noise_LC = torch.randn(4, 3), gumbel_noise(0, 0, 4, 3)
    y_LC = relaxed(alpha_LC, noise_LC, 1e-5)
    assert torch.allclose(y_LC.max(1).values, torch.ones(4), atol=1e-6)
    assert torch.allclose(relaxed(alpha_LC, noise_LC, 1e6), torch.full((4, 3), 1 / 3), atol=1e-5)


def test_every_estimator_gives_finite_weights_and_gradients_at_extreme_tau() -> None:
    for estimator in ESTIMATORS.values():
        for tau in (0.05, 10.0):
            alpha_LC = torch.zeros(3, 3, requires_grad=True)
            mix = estimator(alpha_LC, gumbel_noise(0, 1, 3, 3), tau)
            total = sum(weight for terms in mix for _, weight in terms if weight is not None)
            assert isinstance(total, torch.Tensor)
            (grad,) = torch.autograd.grad(total, [alpha_LC])
            assert torch.isfinite(grad).all()
