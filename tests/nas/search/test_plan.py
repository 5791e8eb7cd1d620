"""What a search costs, against sums by hand; late sharpening and its schedule."""

from typing import Any

import pytest
import torch

from nas.search.config import SearchConfig
from nas.search.plan import SearchPlan, search_flops
from nas.search.step import entropy_gradient
from tests.model.tiny import normal

# attention, dense and identity in two slots, beside the embedding and the softmax
FLOPS, REST, SLOTS = [8.0, 4.0, 0.0], 10.0, 2
ALL, ONE, TWO = REST + SLOTS * 12.0, REST + SLOTS * 4.0, REST + SLOTS * 8.0


@pytest.mark.parametrize(
    ("options", "alpha", "expected"),
    [
        ({}, {"warmup_fraction": 0.0, "data": "shared"}, 20 * 3 * ALL),
        ({}, {}, 20 * 3 * ONE + 10 * 2 * ALL),
        ({"estimator": "soft"}, {"warmup_fraction": 0.25}, 20 * 3 * ALL + 15 * 2 * ALL),
        ({"estimator": "soft"}, {"warmup_fraction": 0.25, "every": 4}, 20 * 3 * ALL + 4 * 2 * ALL),
        ({"estimator": "dirichlet"}, {"warmup_fraction": 0.5}, 20 * 3 * ALL + 10 * 2 * ALL),
        ({"estimator": "straight_through"}, {"warmup_fraction": 0.5}, 20 * 3 * ALL + 10 * 2 * ALL),
        ({"estimator": "single_path"}, {"warmup_fraction": 0.5}, 20 * 3 * ONE + 10 * 2 * ONE),
        ({"estimator": "two_path"}, {"warmup_fraction": 0.5}, 20 * 3 * TWO + 10 * 2 * TWO),
        ({"estimator": "spos"}, {}, 20 * 3 * ONE),
        (
            {"estimator": "spos"},
            {"warmup_fraction": 0.5, "estimator": "two_path"},
            20 * 3 * ONE + 10 * 2 * TWO,
        ),
        (
            {"estimator": "soft", "warmup_estimator": "spos"},
            {"warmup_fraction": 0.5, "data": "shared"},
            10 * 3 * ONE + 10 * 3 * ALL,
        ),
    ],
)
def test_every_pass_of_a_search_is_counted(
    options: dict[str, Any], alpha: dict[str, Any], expected: float
) -> None:
    config = SearchConfig.model_validate(
        {"steps": 20, "optimiser": {"warmup_steps": 2}, "alpha": alpha, **options}
    )
    plan = SearchPlan(config, 20, memory=0, segment=1)
    flops_N = search_flops(plan, FLOPS, REST, SLOTS)
    assert len(flops_N) == plan.steps
    assert sum(flops_N) == pytest.approx(expected)


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
