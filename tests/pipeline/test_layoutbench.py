"""What a search on LayoutBench counts as having cost, in trainings of a layout."""

import pytest

from pipeline.layoutbench import search_cost
from tests.pipeline.conftest import PlanWith

BASE = ["model.candidates=[attention, dense]", "retrain.steps=25", "search.steps=30"]
# The tiny experiment's batch x segment, and how often each phase validates: at 10, 20 and the end.
TOKENS, IN_SEARCH, IN_TRAINING = 4 * 16, 3, 3


@pytest.mark.parametrize("scored", [0, 5])
@pytest.mark.parametrize("estimator", ["spos", "soft"])
def test_passes_validations_and_scored_layouts_are_counted(
    plan_with: PlanWith, estimator: str, scored: int
) -> None:
    settings = [*BASE, f"search.estimator={estimator}", "search.alpha.warmup_fraction=0.5"]
    plan = plan_with(*settings)
    costs, valid = plan.costs, len(plan.prepared.tokens["valid"])
    both = sum(costs.by_label.values())
    layout, soft = costs.rest + 4 * both / 2, costs.rest + 4 * both
    spent = {
        "spos": 3 * TOKENS * 30 * layout + IN_SEARCH * valid * 4 * layout,
        "soft": (3 * 30 + 2 * 15) * TOKENS * soft + IN_SEARCH * valid * (soft + layout),
    }[estimator] + scored * valid * layout
    training = 3 * TOKENS * 25 + IN_TRAINING * valid
    assert search_cost(plan, scored) == pytest.approx(spent / training)
