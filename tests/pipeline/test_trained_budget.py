"""Methods that train, within a budget of times: what is trained keeps it when it is measured."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from model import Layout
from nas.derivation.training import Length
from pipeline.derive import Derivation, derivation
from pipeline.plan import RunPlan
from tests.pipeline.conftest import Clock, PlanWith, true_ms

SLOTS, LIMIT = 8, 0.66
# 0.4 ms, and four times attention and dense.
MOST_MS = LIMIT * 6.4


@pytest.fixture
def plan(plan_with: PlanWith, clock: Clock) -> RunPlan:
    clock.off = 0.03
    return plan_with(f"model.n_blocks={SLOTS}", f"derive.budget.latency={LIMIT}x")


def nats(layout: Layout) -> float:
    """Every block helps, one attention is enough, and early ones are better."""
    places = [place for place, slot in enumerate(layout) if slot.kind == "attention"]
    blocks = sum(slot.kind != "identity" for slot in layout)
    return 5 - 0.06 * blocks + 0.015 * len(places) - 0.02 * bool(places) + 0.002 * sum(places)


@dataclass
class Trainings:
    """Remembers what was trained, and how many were asked for at a time."""

    layouts: dict[tuple[Layout, Length, int], Layout] = field(default_factory=dict)
    asked: list[int] = field(default_factory=list)

    def __call__(
        self, layouts: Sequence[Layout], length: Length, seeds: Sequence[int]
    ) -> list[float]:
        self.layouts |= {(one, length, seed): one for seed in seeds for one in layouts}
        self.asked.append(len(layouts) * len(seeds))
        return [nats(layout) + 1e-4 * seed for seed in seeds for layout in layouts]

    def derive(self, plan: RunPlan, method: str, **options: Any) -> Derivation:
        config = plan.experiment.derive.model_copy(update={"method": method, **options})
        return derivation(plan, config, self)


@pytest.mark.parametrize("method", ["trained", "predictor"])
@pytest.mark.parametrize("off", [0.0, 0.03])
def test_the_answer_keeps_the_budget_when_it_is_measured(
    plan: RunPlan, clock: Clock, method: str, off: float
) -> None:
    """What is trained is predicted to keep it; where predictions err, the next finalist answers."""
    clock.off = off
    trainings = Trainings()
    architecture = trainings.derive(plan, method).architecture
    trained = {*trainings.layouts.values()}
    assert architecture.blocks in trained
    assert max(map(true_ms, trained)) <= MOST_MS * (1 + 2 * off + 1e-9)
    (timed,) = architecture.costs.times
    assert timed.ms == pytest.approx(true_ms(architecture.blocks))
    assert timed.ms <= timed.most_ms == pytest.approx(MOST_MS)
