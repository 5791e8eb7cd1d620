"""Late sharpening: its gradient, its schedule, and that it does nothing unless asked."""

import pytest
import torch

from nas.config import SearchConfig
from nas.plan import SearchPlan
from nas.search_step import entropy_gradient
from tests.model.tiny import normal


def plan_of(weight: float, begin: float = 0.8) -> SearchPlan:
    sharpen = {"weight": weight, "begin": begin}
    config = SearchConfig(steps=101, alpha={"freeze": 0.0, "sharpen": sharpen})
    return SearchPlan(config, 101, memory=0, segment=8)


def test_the_gradient_is_autograds() -> None:
    alpha_LC = normal(5, 3).requires_grad_()
    pi_LC = torch.softmax(alpha_LC, dim=-1)
    entropy = -(pi_LC * pi_LC.log()).sum(-1).mean()
    (wanted_LC,) = torch.autograd.grad(entropy, [alpha_LC])
    torch.testing.assert_close(entropy_gradient(alpha_LC.detach()), wanted_LC, rtol=0, atol=1e-12)


def test_at_uniform_pi_nothing_pulls() -> None:
    assert torch.equal(entropy_gradient(torch.zeros(4, 3)).abs() < 1e-8, torch.ones(4, 3) > 0)


@pytest.mark.parametrize(("step", "wanted"), [(0, 0.0), (80, 0.0), (90, 0.25), (100, 0.5)])
def test_it_comes_late_and_ends_at_its_weight(step: int, wanted: float) -> None:
    assert plan_of(0.5).sharpen(step) == pytest.approx(wanted)


def test_by_default_it_is_off() -> None:
    plan = SearchPlan(SearchConfig(steps=101), 101, memory=0, segment=8)
    assert not any(plan.sharpen(step) for step in range(101))


def test_descent_lowers_the_entropy() -> None:
    alpha_LC = normal(5, 3)
    for _ in range(200):
        alpha_LC = alpha_LC - 5.0 * entropy_gradient(alpha_LC)
    assert torch.softmax(alpha_LC, dim=-1).max(-1).values.min() > 0.9
