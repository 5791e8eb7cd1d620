"""Late sharpening: its gradient, its schedule, and that it does nothing unless asked."""

import pytest
import torch

from nas.config import SearchConfig
from nas.search.plan import SearchPlan
from nas.search.step import entropy_gradient
from tests.model.tiny import normal
from tests.nas.search.test_step import make, run
from utils.pi import entropy_share, softmax

STEPS = 101
SCHEDULES = ["cosine", "linear", "constant"]


def plan_of(weight: float, begin: float = 0.8, **alpha: object) -> SearchPlan:
    penalty = {"weight": weight, "begin": begin}
    config = SearchConfig.model_validate(
        {"steps": STEPS, "alpha": {"warmup_fraction": 0.0, "entropy_penalty": penalty, **alpha}}
    )
    return SearchPlan(config, STEPS, memory=0, segment=8)


def test_the_gradient_is_autograds() -> None:
    alpha_LC = normal(5, 3).requires_grad_()
    pi_LC = torch.softmax(alpha_LC, dim=-1)
    entropy = -(pi_LC * pi_LC.log()).sum(-1).mean()
    (wanted_LC,) = torch.autograd.grad(entropy, [alpha_LC])
    torch.testing.assert_close(entropy_gradient(alpha_LC.detach()), wanted_LC, rtol=0, atol=1e-12)


def test_at_uniform_pi_nothing_pulls() -> None:
    assert torch.equal(entropy_gradient(torch.zeros(4, 3)).abs() < 1e-8, torch.ones(4, 3) > 0)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("every", [1, 4])
@pytest.mark.parametrize("warmup_fraction", [0.0, 0.3])
def test_it_rises_with_what_alpha_has_travelled(
    schedule: str, every: int, warmup_fraction: float
) -> None:
    plan = plan_of(0.5, 0.8, schedule=schedule, every=every, warmup_fraction=warmup_fraction)
    due = [step for step in range(STEPS) if plan.alpha_due(step)]
    total = sum(plan.alpha_lr(step) for step in due)
    spent = 0.0
    for step in range(STEPS):
        if step in due:
            spent += plan.alpha_lr(step)
        wanted = 0.5 * max(0.0, (spent / total - 0.8) / 0.2)
        assert plan.entropy_weight(step) == pytest.approx(wanted, abs=1e-12)
    assert plan.entropy_weight(STEPS - 1) == 0.5


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_last_fifth_has_its_part_of_the_pull_under_every_schedule(schedule: str) -> None:
    """Weight times learning rate, summed: half of a fifth, for the weight rises from 0 to 1."""
    plan = plan_of(1.0, schedule=schedule)
    pull = sum(plan.entropy_weight(step) * plan.alpha_lr(step) for step in range(STEPS))
    assert pull / sum(plan.alpha_lr(step) for step in range(STEPS)) == pytest.approx(0.1, abs=0.01)


def test_a_search_that_sharpens_ends_with_lower_entropy() -> None:
    share = []
    for weight in (0.0, 1.0):
        step, state = make(60, data="prequential", entropy_penalty={"weight": weight, "begin": 0.5})
        share.append(entropy_share(softmax(run(step, state, 60)[-1].numpy())))
    assert share[1] < share[0] - 0.05


def test_by_default_it_is_off() -> None:
    plan = SearchPlan(SearchConfig(steps=101), 101, memory=0, segment=8)
    assert not any(plan.entropy_weight(step) for step in range(101))


def test_descent_lowers_the_entropy() -> None:
    alpha_LC = normal(5, 3)
    for _ in range(200):
        alpha_LC = alpha_LC - 5.0 * entropy_gradient(alpha_LC)
    assert torch.softmax(alpha_LC, dim=-1).max(-1).values.min() > 0.9
