"""Methods that train, within a budget of times: what is trained keeps it when it is measured."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from model import Evidence, Layout, layout_letters
from nas.derivation import DERIVATIONS, Derived, Request, Trial, blocks_of
from pipeline.context import RunPlan
from pipeline.derive import Derivation, derivation
from pipeline.trained_budget import FILE
from tests.pipeline.conftest import Clock, PlanWith, true_ms

SLOTS, LIMIT = 8, 0.66
# 0.4 ms, and four times attention and dense.
MOST_MS = LIMIT * 6.4


@pytest.fixture
def plan(plan_with: PlanWith, clock: Clock) -> RunPlan:
    clock.off = 0.03
    return plan_with(f"model.slots={SLOTS}", f"derive.budget.latency={LIMIT}x")


def nats(layout: Layout) -> float:
    """Every block helps, one attention is enough, and early ones are better."""
    places = [place for place, slot in enumerate(layout) if slot.kind == "attention"]
    blocks = len(blocks_of(layout).split())
    return 5 - 0.06 * blocks + 0.015 * len(places) - 0.02 * bool(places) + 0.002 * sum(places)


@dataclass
class Trainings:
    """Remembers what was trained, and how many were asked for at a time."""

    layouts: dict[Trial, Layout] = field(default_factory=dict)
    asked: list[int] = field(default_factory=list)

    def __call__(self, trials: Sequence[Trial]) -> list[float]:
        self.layouts |= {trial: trial.layout for trial in trials}
        self.asked.append(len(trials))
        return [nats(trial.layout) + 1e-4 * trial.seed for trial in trials]

    def derive(self, plan: RunPlan, method: str, **options: Any) -> Derivation:
        config = plan.experiment.derive.model_copy(update={"method": method, **options})
        return derivation(plan, config, self)


@pytest.mark.parametrize("method", ["finals", "predictor"])
def test_what_is_trained_keeps_the_budget_when_it_is_measured(
    plan: RunPlan, clock: Clock, method: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Predictions that err let more be looked at; what is over is measured and not trained."""
    trainings = Trainings()
    architecture = trainings.derive(plan, method).architecture
    trained = {*trainings.layouts.values()}
    assert max(map(true_ms, trained)) <= MOST_MS * (1 + 1e-9)
    measured = [letters for asked in clock.asked[1:] for letters in asked[1:]]
    letters_of = {candidate.label[0]: candidate for candidate in plan.candidates}
    assert any(
        true_ms(tuple(letters_of[letter] for letter in letters.split())) > MOST_MS
        for letters in measured
    )
    (timed,) = architecture.costs.times
    assert timed.ms == pytest.approx(true_ms(architecture.slots))
    assert timed.most_ms == pytest.approx(MOST_MS)
    assert "over the budget when measured, so not trained: " in capsys.readouterr().err
    blocks = [" ".join(sorted(letters.replace("i", "").split())) for letters in measured]
    assert len(set(blocks)) == len(blocks), "each once"


@pytest.mark.parametrize("method", ["finals", "predictor"])
def test_asked_again_without_what_is_over_a_method_repeats_neither_trainings_nor_words(
    plan: RunPlan, method: str, capsys: pytest.CaptureFixture[str]
) -> None:
    trainings = Trainings()
    trainings.derive(plan, method)
    assert sum(trainings.asked) == len(trainings.layouts), "each is asked for once"
    lines = capsys.readouterr().err.splitlines()
    over = [number for number, line in enumerate(lines) if line.startswith("over the budget")]
    said = [number for number, line in enumerate(lines) if line.startswith(f"{method}: ")]
    assert over
    # A line for each time that something is trained, and for each that was refused.
    assert len(said) == len(trainings.asked) + len(over)
    assert max(over) < max(said), "what is trained instead is said"


def test_doubts_about_a_table_stand_in_what_was_derived_by_it(plan: RunPlan, clock: Clock) -> None:
    clock.off = 0.3
    evidence = Trainings().derive(plan, "finals").architecture.evidence
    assert evidence is not None
    (line,) = evidence.caveats
    assert line.startswith("warning: latency: the table may not be trusted: ")


def test_asked_again_each_trial_has_its_own_nats(
    plan: RunPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    attention, dense, identity = plan.candidates
    first, second, over, instead = (
        Trial(layout=(block,) * count + (identity,) * (SLOTS - count), half=False, seed=1)
        for block, count in ((dense, 2), (dense, 1), (attention, 8), (attention, 1))
    )
    told = list[Sequence[float]]()

    def three_times(request: Request) -> Derived:
        third = instead if request.refused else over
        asked = [[first], [second], [third, first]]
        assert request.train is not None
        told[:] = [[*request.train(trials)] for trials in asked]
        return Derived(layout=third.layout, evidence=Evidence(method="finals"))

    monkeypatch.setitem(DERIVATIONS, "finals", three_times)
    trainings = Trainings()
    trainings.derive(plan, "finals")
    one, two, three = (nats(trial.layout) + 1e-4 for trial in (first, second, instead))
    assert told == [[one], [two], [three, one]]
    assert list(trainings.layouts) == [first, second, instead]


def test_rules_name_the_largest_networks_that_fit(plan: RunPlan) -> None:
    trainings = Trainings()
    answer = layout_letters(trainings.derive(plan, "finals").architecture.slots)
    by_count = {
        count: max(
            blocks_of(layout).split().count("dense")
            for layout in trainings.layouts.values()
            if blocks_of(layout).split().count("attention") == count
        )
        for count in (1, 2, 3)
    }
    # 0.5 ms a dense block, 0.01 ms what adds nothing.
    rest_ms = MOST_MS - 0.4 - 0.01 * SLOTS
    assert by_count == {count: int((rest_ms - 0.99 * count) / 0.49) for count in (1, 2, 3)}
    assert answer == "a d d d d d i i"


@pytest.mark.parametrize("method", ["finals", "predictor"])
def test_started_again_it_answers_the_same_and_measures_nothing(
    plan: RunPlan, clock: Clock, method: str
) -> None:
    clock.noise = 0.05
    trainings = Trainings()
    first = trainings.derive(plan, method)
    measured, trained = len(clock.asked), len(trainings.layouts)
    assert trainings.derive(plan, method).architecture == first.architecture
    assert (len(clock.asked), len(trainings.layouts)) == (measured, trained)


def test_another_budget_is_judged_by_the_same_times(plan: RunPlan, clock: Clock) -> None:
    trainings = Trainings()
    trainings.derive(plan, "finals")
    count = len(clock.asked)
    budget = plan.experiment.derive.budget.model_copy(update={"latency": f"{LIMIT - 0.01}x"})
    trainings.derive(plan, "finals", budget=budget)
    again = [letters for asked in clock.asked[count:] for letters in asked[1:]]
    known = [letters for asked in clock.asked[1:count] for letters in asked[1:]]
    assert not set(again) & set(known)


def test_times_of_another_machine_are_measured_again_and_damaged_ones_refused(
    plan: RunPlan, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    trainings = Trainings()
    trainings.derive(plan, "finals")
    path, count = Path(plan.run_dir) / FILE, len(clock.asked)
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"key": content["key"] | {"threads": "64"}}))
    trainings.derive(plan, "finals")
    assert len(clock.asked) > count
    assert "was measured elsewhere or otherwise" in capsys.readouterr().err
    path.write_text(json.dumps(content | {"by_blocks": {"dense": {"layout": "d", "ms": [1]}}}))
    with pytest.raises(ValueError, match=rf"{FILE}: by_blocks\.dense\.ms: .*; remove it, and lay"):
        trainings.derive(plan, "finals")


def test_where_nothing_keeps_it_nothing_is_trained(plan: RunPlan, clock: Clock) -> None:
    trainings = Trainings()
    clock.whole = 9.0
    with pytest.raises(ValueError, match=r"^derive\.budget: no layout that would be trained was"):
        trainings.derive(plan, "finals")
    assert not trainings.layouts


def test_a_width_that_was_filled_afterwards_is_said_to_be_untrained(plan_with: PlanWith) -> None:
    plan = plan_with(f"model.slots={SLOTS}", "derive.budget.parameters=1.2x")
    filled = Trainings().derive(plan, "finals", fill="d_ffn").architecture
    assert filled.evidence is not None
    assert filled.evidence.budget is not None
    assert any(slot.label.startswith("dense_") for slot in filled.slots)
    trained = " ".join(slot.kind[0] for slot in filled.slots)
    assert filled.evidence.budget.endswith(f"x (trained was {trained}, not this width)")


def test_a_budget_of_counted_costs_is_not_measured(plan_with: PlanWith, clock: Clock) -> None:
    plan = plan_with(f"model.slots={SLOTS}", "derive.budget.flops=0.8x")
    architecture = Trainings().derive(plan, "finals").architecture
    assert architecture.costs.times == ()
    assert not clock.asked
    assert not (Path(plan.run_dir) / FILE).exists()
