"""Bounds on pi: their gradient by finite differences, their multipliers, the step they take."""

import numpy as np
import pytest
import torch

from nas.costs.budget import LayoutCost
from nas.search.constraint import (
    Constraint,
    constrain,
    cost_constraint,
    multipliers,
    share_constraint,
)
from tests import tiny
from tests.nas.search.test_step import make

COST = LayoutCost("flops", {"attention": 5.0, "dense": 3.0, "identity": 0.0}, 10.0)
LABELS = ("attention", "dense", "identity")
SLOTS = 4


def constraint(most: float = 15.0, rate: float = 0.1) -> Constraint:
    return cost_constraint(COST, LABELS, most, rate)


def alpha(seed: int, slots: int = SLOTS) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(slots, 3, generator=generator, dtype=torch.float64)


def penalty(one: Constraint, alpha_LC: torch.Tensor, multiplier: float) -> float:
    """By the words of the documentation, slot by slot."""
    pi_LC = np.exp(alpha_LC.numpy())
    pi_LC /= pi_LC.sum(axis=1, keepdims=True)
    expected = one.rest + sum(
        pi_LC[slot, k] * one.value_C[k] for slot in range(len(pi_LC)) for k in range(3)
    )
    return multiplier * max(0.0, expected / one.most - 1.0)


def test_the_expectation_is_over_pi_itself() -> None:
    uniform_LC = torch.zeros(3, 3)
    assert constraint(18.0).ratio(uniform_LC) == pytest.approx((10 + 3 * 8 / 3) / 18.0)
    sure_LC = 50 * torch.eye(3)
    assert constraint(18.0).ratio(sure_LC) == pytest.approx(1.0)


@pytest.mark.parametrize("seed", range(10))
def test_above_the_bound_the_gradient_is_that_of_finite_differences(seed: int) -> None:
    one, alpha_LC, multiplier, step = constraint(), alpha(seed), 0.7, 1e-6
    assert one.ratio(alpha_LC) > 1
    gradient_LC = one.gradient(alpha_LC, multiplier)
    for place in np.ndindex(*alpha_LC.shape):
        nudged = [alpha_LC.clone() for _ in range(2)]
        for each, by in zip(nudged, (step, -step), strict=True):
            each[place] += by
        high, low = (penalty(one, each, multiplier) for each in nudged)
        assert float(gradient_LC[place]) == pytest.approx((high - low) / (2 * step), rel=1e-3)
    assert (gradient_LC.abs().sum(dim=1) > 0).all(), "in every slot"
    assert gradient_LC.sum(dim=1).abs().max() < 1e-12


@pytest.mark.parametrize("seed", range(10))
def test_at_and_below_the_bound_the_gradient_is_exactly_0(seed: int) -> None:
    alpha_LC = alpha(seed)
    expected = constraint(1.0).ratio(alpha_LC)
    for most in (expected, expected * 1.001, 99.0):
        assert torch.equal(constraint(most).gradient(alpha_LC, 3.0), torch.zeros(SLOTS, 3).double())
    assert constraint(expected * 0.999).gradient(alpha_LC, 3.0).abs().min() > 0


def test_the_share_of_what_adds_nothing_is_the_mean_over_the_slots() -> None:
    idle = {"attention": False, "dense": False, "identity": True}
    one = share_constraint(idle, SLOTS, most=0.25, rate=0.1)
    alpha_LC = alpha(3)
    share = float(torch.softmax(alpha_LC, -1)[:, 2].mean())
    assert one.ratio(alpha_LC) == pytest.approx(share / 0.25)
    assert (one.gradient(alpha_LC, 1.0)[:, 2] > 0).all() == (share > 0.25)


def test_the_multiplier_rises_above_the_bound_falls_below_it_and_is_never_negative() -> None:
    one, alpha_LC = constraint(rate=0.5), torch.zeros(SLOTS, 3)
    ratio = (10 + SLOTS * 8 / 3) / 15.0
    assert one.ascended(alpha_LC, 0.2) == pytest.approx(0.2 + 0.5 * (ratio - 1))
    below = constraint(most=41.0, rate=0.5)
    assert below.ascended(alpha_LC, 0.9) == pytest.approx(0.9 + 0.5 * (below.ratio(alpha_LC) - 1))
    assert below.ascended(alpha_LC, 0.1) == 0.0


def test_several_bounds_add_up_and_each_has_a_multiplier() -> None:
    cost = constraint()
    share = share_constraint({"a": False, "b": False, "c": True}, SLOTS, 0.1, rate=0.2)
    state = multipliers([cost, share])
    assert {name: float(value) for name, value in state.items()} == {"cost": 0.0, "nothing": 0.0}
    state = {"cost": torch.tensor(0.3).double(), "nothing": torch.tensor(0.2).double()}
    alpha_LC = alpha(5)
    expected = cost.gradient(alpha_LC, float(state["cost"])) + share.gradient(
        alpha_LC, float(state["nothing"])
    )
    assert torch.equal(constrain(alpha_LC, [cost, share], state), expected)
    assert float(state["cost"]) == cost.ascended(alpha_LC, 0.30000001192092896)


def test_while_an_earlier_bound_is_broken_a_later_multiplier_does_not_rise() -> None:
    cost = constraint(rate=0.5)
    alpha_LC = torch.zeros(SLOTS, 3)
    broken, held = (
        share_constraint({"a": False, "b": False, "c": True}, SLOTS, most, rate=0.5)
        for most in (0.1, 0.9)
    )
    for first, rises in ((broken, False), (held, True)):
        state = multipliers([first, cost])
        constrain(alpha_LC, [first, cost], state)
        assert (float(state["cost"]) > 0) == rises
    # It may fall all the same.
    below = constraint(most=99.0, rate=0.5)
    state = {name: value + 0.5 for name, value in multipliers([broken, below]).items()}
    constrain(alpha_LC, [broken, below], state)
    assert float(state["cost"]) < 0.5


def searched(constraints: tuple[Constraint, ...], steps: int = 200) -> tuple[float, float]:
    """The ratio of a bound after a search of a tiny SuperNet, and its multiplier."""
    step, state = make(steps, resample_every=1)
    object.__setattr__(step, "constraints", constraints)
    state.multipliers = multipliers(constraints)
    for index in range(steps):
        step(state, tiny.batch(seed=index, first=index == 0))
        state.step += 1
    one = constraints[0]
    return one.ratio(state.parameters["alpha"].detach()), float(state.multipliers[one.name])


@pytest.mark.parametrize(
    "target",
    [pytest.param(0.6, marks=pytest.mark.slow), 0.75, pytest.param(0.9, marks=pytest.mark.slow)],
)
def test_a_search_ends_near_its_target(target: float) -> None:
    uniform = 10 + 3 * 8 / 3
    ratio, multiplier = searched((cost_constraint(COST, LABELS, target * uniform, 0.05),))
    assert ratio == pytest.approx(1.0, abs=0.03)
    assert multiplier > 0
