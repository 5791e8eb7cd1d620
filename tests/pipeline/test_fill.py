"""What a budget leaves is spent on width: as much as it allows, and never more."""

from pathlib import Path
from typing import Any

import pytest

import derive
import retrain
from model import load_architecture, load_model
from nas.baselines import GRAIN, with_width
from nas.costs.model import REFERENCE
from pipeline.costs import cost_model
from tests import tiny
from tests.pipeline.conftest import Clock, plan_of_run
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
    most = 0.9 * cost_model(plan).counted("parameters")([*_interleaved(plan)])
    assert architecture.costs.parameters <= most
    (width,) = set(widths(architecture.blocks))
    assert width > plan.experiment.model.d_ffn
    wider = [
        slot.model_copy(update={"d_ffn": width + GRAIN}) if slot.kind == "dense" else slot
        for slot in architecture.blocks
    ]
    assert cost_model(plan).counted("parameters", wider)(wider) > most
    assert architecture.name == "layout-adid-parameters0.9x-filled"
    assert architecture.evidence.method == "layout"
    factor = width / plan.experiment.model.d_ffn
    assert architecture.evidence.budget == (
        f"parameters 0.9x of interleaved; d_ffn widened to {factor:.2f}x after the "
        "choice of the layout"
    )
    run(retrain, searched)
    model = load_model(searched / "model")
    assert sum(p.numel() for p in model.parameters()) == architecture.costs.parameters


def _interleaved(plan: Any) -> list[Any]:
    kinds = {candidate.kind: candidate for candidate in plan.candidates}
    return [kinds["attention"], kinds["dense"]] * 2


@pytest.fixture
def clock(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """1 ms for attention, a millisecond for each 48 of d_ffn, more than linear beyond 100."""

    def slot_ms(slot: Any) -> float:
        if slot.kind == "dense":
            return float(slot.d_ffn / 48 + max(0, slot.d_ffn - 100) / 40)
        return 1.0 if slot.kind == "attention" else 0.01

    def true_ms(layout: Any) -> float:
        return 0.4 + sum(map(slot_ms, layout))

    monkeypatch.setattr("tests.pipeline.conftest.true_ms", true_ms)
    return clock


def test_a_limited_time_is_filled_until_it_holds_when_measured(
    searched: Path, clock: Clock
) -> None:
    architecture = derived(searched, "derive.method=layout", "derive.layout=d d i i",
                           "derive.budget.latency=6ms")  # fmt: skip
    (timed,) = architecture.costs.times
    assert timed.most_ms == 6.0
    assert 4.5 < timed.ms <= 6.0
    # By the line through 24 and 48 it would be wider than 100, where it is over.
    assert len([names for names in clock.asked if REFERENCE in names]) >= 4


def test_where_several_limits_are_given_the_first_that_is_reached_counts(
    searched: Path, clock: Clock
) -> None:
    method = ("derive.method=layout", "derive.layout=d d i i")
    alone = derived(searched, *method, "derive.budget.latency=6ms")
    both = derived(searched, *method, "derive.budget.latency=6ms", "derive.budget.parameters=0.8x")
    assert widths(both.blocks)[0] < widths(alone.blocks)[0]
    assert both.costs.times[0].ms < 6.0


def test_a_cost_that_no_width_changes_widens_nothing(
    searched: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    architecture = derived(searched, "derive.method=layout", "derive.layout=a d d i",
                           "derive.budget.cache=0.5x")  # fmt: skip
    assert architecture.letters() == "a d d i"
    assert not architecture.name.endswith("filled")
    assert "width does not change cache, so nothing is widened" in capsys.readouterr().err


def test_a_layout_that_is_over_when_it_is_measured_again_keeps_what_it_was_chosen_by(
    searched: Path, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    """A time differs from the next by some per cent; what stands in the file must be in budget."""
    slower = iter([1.0, 1.0, 1.5, 1.5, 1.5, 1.5, 1.5])
    plain = clock.times_ms

    def times_ms(measured: Any, workload: str, layouts: Any) -> dict[str, float]:
        factor = next(slower)
        return {
            name: ms * (1.0 if name == REFERENCE else factor)
            for name, ms in plain(measured, workload, layouts).items()
        }

    clock.times_ms = times_ms  # type: ignore[method-assign]
    architecture = derived(searched, "derive.method=layout", "derive.layout=d d i i",
                           "derive.budget.latency=1.5ms")  # fmt: skip
    assert architecture.letters() == "d d i i"
    (timed,) = architecture.costs.times
    assert timed.ms <= timed.most_ms
    assert "no wider layout is within the budget" in capsys.readouterr().err


def test_there_must_be_something_to_fill(searched: Path, capsys: Any) -> None:
    line = refused(derive, capsys, searched, *settings("derive.fill=d_ffn"))
    assert line.endswith("derive.fill: d_ffn fills a budget, and there is none; give one")
