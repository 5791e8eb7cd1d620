"""Bounds on what pi is expected to cost, kept by multipliers that learn (dual ascent).

A hinge on the expectation over pi is that of PLANER (arXiv 2208.14580) and FBNet (1812.03443).
Differs from the papers: its weight is no constant, which misses targets, but rises while pi costs
more than the bound and falls while it costs less.

L slots   C candidates
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nas.costs.budget import LayoutCost


@dataclass(frozen=True)
class Constraint:
    """rest + sum_l sum_k pi_lk value_k, over all slots, is to be at most `most`.

    Attributes:
        name: that of its multiplier in the state.
        value_C: what each candidate adds, by alpha's order.
        rate: nats that the multiplier rises at an alpha step, for an excess of 100%.
    """

    name: str
    value_C: tuple[float, ...]
    rest: float
    most: float
    rate: float

    def ratio(self, alpha_LC: Tensor) -> float:
        """The expectation over pi = softmax(alpha), as a part of the bound."""
        pi_LC = torch.softmax(alpha_LC.detach().double(), dim=-1)
        return (self.rest + float((pi_LC * self._value_C(pi_LC)).sum())) / self.most

    def gradient(self, alpha_LC: Tensor, multiplier: float) -> Tensor:
        """Of multiplier * max(0, expectation / most - 1); exactly 0 where the bound holds.

        d/d alpha_lk of sum_j pi_lj v_j is pi_lk (v_k - sum_j pi_lj v_j). It is of pi itself, never
        of a Gumbel sample, and so the same in every process.
        """
        alpha_LC = alpha_LC.detach()
        if self.ratio(alpha_LC) <= 1.0:
            return torch.zeros_like(alpha_LC)
        pi_LC = torch.softmax(alpha_LC.double(), dim=-1)
        value_C = self._value_C(pi_LC)
        mean_L1 = (pi_LC * value_C).sum(-1, keepdim=True)
        gradient_LC = multiplier / self.most * pi_LC * (value_C - mean_L1)
        return gradient_LC.to(alpha_LC.dtype)

    def ascended(self, alpha_LC: Tensor, multiplier: float) -> float:
        """The multiplier after an alpha step that began at this alpha; never below 0."""
        return max(0.0, multiplier + self.rate * (self.ratio(alpha_LC) - 1.0))

    def _value_C(self, like: Tensor) -> Tensor:
        return torch.tensor(self.value_C, dtype=like.dtype)


def multipliers(constraints: Sequence[Constraint]) -> dict[str, Tensor]:
    """The multipliers of a state before its first step: 0."""
    return {one.name: torch.zeros((), dtype=torch.float64) for one in constraints}


def constrain(
    alpha_LC: Tensor, constraints: Sequence[Constraint], state: dict[str, Tensor]
) -> Tensor:
    """The sum of all gradients at alpha; the multipliers in `state` take their step.

    Where bounds exclude each other the first ones hold: a multiplier does not rise while a bound
    before its own is broken. Both would grow without end otherwise, and neither bound would hold.
    """
    total_LC = torch.zeros_like(alpha_LC)
    may_rise = True
    for one in constraints:
        multiplier = float(state[one.name])
        total_LC += one.gradient(alpha_LC, multiplier)
        ascended = one.ascended(alpha_LC, multiplier)
        new = ascended if may_rise else min(multiplier, ascended)
        state[one.name] = torch.tensor(new, dtype=torch.float64)
        may_rise = may_rise and one.ratio(alpha_LC) <= 1.0
    return total_LC


def cost_constraint(
    cost: LayoutCost, labels: Sequence[str], most: float, rate: float
) -> Constraint:
    """A layout's expected cost is at most so much."""
    assert cost.additive, cost.name
    return Constraint(
        "cost", tuple(cost.by_label[label] for label in labels), cost.rest, most, rate
    )


def share_constraint(
    adds_nothing: Mapping[str, bool], slots: int, most: float, rate: float
) -> Constraint:
    """The share of pi, in the mean of all slots, of candidates that add nothing is at most so."""
    value_C = tuple(float(idle) / slots for idle in adds_nothing.values())
    return Constraint("nothing", value_C, 0.0, most, rate)
