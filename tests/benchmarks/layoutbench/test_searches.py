"""What a search on LayoutBench counts as having cost, in trainings of a layout."""

import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.layoutbench.searches import search_cost, weigh
from benchmarks.layoutbench.table import LayoutTable, Row, all_layouts
from model import Layout
from nas.derivation.training import Length
from pipeline.derive import choose, derivation
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


@pytest.mark.parametrize(
    ("method", "more", "scored"),
    [
        ("predictor", [], 8),
        ("trained", ["derive.top=20"], 16),
        ("predictor", ["search.estimator=spos", "derive.evaluations=9"], 9),
    ],
)
def test_methods_that_train_pay_for_every_training(
    plan_with: PlanWith, tmp_path: Path, method: str, more: list[str], scored: int
) -> None:
    plan, asked = plan_with(*BASE, f"derive.method={method}", *more), list[tuple[Layout, Length]]()

    def train(layouts: Sequence[Layout], length: Length, seeds: Sequence[int]) -> list[float]:
        asked.extend((layout, length) for _ in seeds for layout in layouts)
        nats = [4.0 - 0.1 * sum(slot.kind == "attention" for slot in one) for one in layouts]
        return nats * len(seeds)

    chosen = derivation(plan, plan.experiment.derive, train)
    choose(chosen, plan.experiment, tmp_path / "run" / "seed-5")
    rows = [Row(one, seed, 1.0, 1.0, 1.0) for one in all_layouts("ad", 4) for seed in (0, 1)]
    weighed = weigh(plan, [5], LayoutTable(tuple(rows)), replays=2)
    flops = sum((0.5 if length == "half" else 1.0) * plan.costs(one) for one, length in asked)
    lengths = {"half", "full"} if method == "predictor" else {"full"}
    assert {length for _, length in asked} == lengths
    of_mean = plan.costs.rest + 4 * sum(plan.costs.by_label.values()) / 2
    assert weighed["cost"] == pytest.approx((search_cost(plan, scored) + flops) / of_mean, rel=1e-4)
    assert weighed["trainings"] == min(math.ceil(weighed["cost"] + 1), 16)
