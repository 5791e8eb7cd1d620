"""Gumbel noise: its law, its independence of any state, and what draws from it come to."""

import math
from collections import Counter
from itertools import permutations

import pytest
import torch

from nas.search.estimators import ESTIMATORS, gumbel_noise, relaxed, single_path, spos, two_path


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


def test_two_path_and_single_path_draw_the_same_candidate() -> None:
    alpha_LC = torch.randn(5, 3)
    for draw in range(50):
        noise_LC = gumbel_noise(1, draw, 5, 3)
        one = [terms[0][0] for terms in single_path(alpha_LC, noise_LC, 0.4)]
        assert [terms[0][0] for terms in two_path(alpha_LC, noise_LC, 0.4)] == one


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


def test_relaxed_is_one_hot_for_small_tau_and_uniform_for_large() -> None:
    alpha_LC, noise_LC = torch.randn(4, 3), gumbel_noise(0, 0, 4, 3)
    y_LC = relaxed(alpha_LC, noise_LC, 1e-5)
    assert torch.allclose(y_LC.max(1).values, torch.ones(4), atol=1e-6)
    assert torch.allclose(relaxed(alpha_LC, noise_LC, 1e6), torch.full((4, 3), 1 / 3), atol=1e-5)


def test_every_estimator_gives_finite_weights_and_gradients_at_extreme_tau() -> None:
    for estimator in ESTIMATORS.values():
        if estimator is spos:
            continue
        for tau in (0.05, 10.0):
            alpha_LC = torch.zeros(3, 3, requires_grad=True)
            mix = estimator(alpha_LC, gumbel_noise(0, 1, 3, 3), tau)
            total = sum(weight for terms in mix for _, weight in terms if weight is not None)
            assert isinstance(total, torch.Tensor)
            (grad,) = torch.autograd.grad(total, [alpha_LC])
            assert torch.isfinite(grad).all()
