"""What a budget leaves is spent on width: as much as it allows, and never more."""

from pathlib import Path
from typing import Any

import pytest

import derive
import retrain
from model import load_architecture, load_model
from nas.costs import table as cost_table
from nas.opponents.width import GRAIN, with_width
from pipeline import costs as plan_costs
from pipeline.costs import counted_cost
from tests import tiny
from tests.pipeline.conftest import plan_of_run
from tests.runs import refused, run, settings

ATTENTION, DENSE, IDENTITY = tiny.candidates("attention", "dense", "identity")
WIDE = tiny.candidates({"kind": "dense", "label": "dense_wide", "d_ffn": 40})[0]


def widths(layout: Any) -> list[int]:
    return [slot.d_ffn for slot in layout if slot.kind == "dense"]


def test_every_dense_block_is_widened_by_one_factor_and_gets_a_label_of_its_own() -> None:
    layout = (ATTENTION, DENSE, WIDE, IDENTITY, DENSE)
    assert widths(layout) == [16, 40, 16]
    wider = with_width(layout, 1.65)
    assert widths(wider) == [24, 64, 24]
    assert [slot.label for slot in wider] == [
        "attention", "dense_24", "dense_wide_64", "identity", "dense_24",
    ]  # fmt: skip
    assert with_width(layout, 1.19) == layout, "none reaches the next multiple"
    assert with_width((ATTENTION, IDENTITY), 9.0) == (ATTENTION, IDENTITY)
    assert all(width % GRAIN == 0 for width in widths(with_width(layout, 3.1416)))


def derived(folder: Path, *given: str) -> Any:
    run(derive, folder, *settings("derive.fill=d_ffn", *given))
    return load_architecture(folder / "architecture.json")


def test_a_counted_budget_is_filled_exactly(searched: Path) -> None:
    architecture = derived(searched, "derive.budget.parameters=0.9x", "derive.layout=a d i d",
                           "derive.method=layout")  # fmt: skip
    plan = plan_of_run(searched)
    most = 0.9 * counted_cost(plan, "parameters")([*_interleaved(plan)])
    assert architecture.costs.parameters <= most
    (width,) = set(widths(architecture.slots))
    assert width > plan.experiment.model.d_ffn
    wider = [
        slot.model_copy(update={"d_ffn": width + GRAIN}) if slot.kind == "dense" else slot
        for slot in architecture.slots
    ]
    assert counted_cost(plan, "parameters", wider)(wider) > most
    assert architecture.name == "layout-adid-parameters0.9x-filled"
    assert "d_ffn filled to" in architecture.evidence.method
    run(retrain, searched)
    model = load_model(searched / "model")
    assert sum(p.numel() for p in model.parameters()) == architecture.costs.parameters


def _interleaved(plan: Any) -> list[Any]:
    kinds = {candidate.kind: candidate for candidate in plan.candidates}
    return [kinds["attention"], kinds["dense"]] * 2


class Clock:
    """1 ms for attention, a millisecond for each 48 of d_ffn, more than linear beyond 100."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.layouts: list[list[str]] = []
        monkeypatch.setattr(
            cost_table.Measurement, "times_ms", lambda self_, *rest: self.times_ms(*rest)
        )

    def times_ms(self, workload: str, layouts: Any) -> dict[str, float]:
        self.layouts.append(list(layouts))
        return {name: 0.4 + sum(map(self._slot, layout)) for name, layout in layouts.items()}

    @staticmethod
    def _slot(slot: Any) -> float:
        if slot.kind == "dense":
            return slot.d_ffn / 48 + max(0, slot.d_ffn - 100) / 40
        return 1.0 if slot.kind == "attention" else 0.01


def test_a_limited_time_is_filled_until_it_holds_when_measured(
    searched: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    architecture = derived(searched, "derive.method=layout", "derive.layout=d d i i",
                           "derive.budget.latency=6ms")  # fmt: skip
    (timed,) = architecture.costs.times
    assert timed.most_ms == 6.0
    assert 4.5 < timed.ms <= 6.0
    # By the line through 24 and 48 it would be wider than 100, where it is over.
    assert len([names for names in clock.layouts if plan_costs._REFERENCE in names]) >= 4


def test_where_several_limits_are_given_the_first_that_is_reached_counts(
    searched: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Clock(monkeypatch)
    method = ("derive.method=layout", "derive.layout=d d i i")
    alone = derived(searched, *method, "derive.budget.latency=6ms")
    both = derived(searched, *method, "derive.budget.latency=6ms", "derive.budget.parameters=0.8x")
    assert widths(both.slots)[0] < widths(alone.slots)[0]
    assert both.costs.times[0].ms < 6.0


def test_a_layout_without_dense_blocks_stays_as_it_is(searched: Path) -> None:
    architecture = derived(searched, "derive.method=layout", "derive.layout=a i i i",
                           "derive.budget.parameters=0.9x")  # fmt: skip
    assert architecture.letters() == "a i i i"
    assert architecture.evidence.method == "layout, d_ffn as it was"


def test_there_must_be_something_to_fill(searched: Path, capsys: Any) -> None:
    line = refused(derive, capsys, searched, *settings("derive.fill=d_ffn"))
    assert line.endswith("derive.fill: d_ffn fills a budget, and there is none; give one")
