"""Baselines of a run's chosen layout: which cost is equal, and how it is known."""

from pathlib import Path
from typing import Any

import pytest

import derive
from model import load_architecture
from nas.baselines import TOLERANCE, of_equal_cost
from pipeline.baselines import FILE, entries_of, equal_cost, matching
from tests.pipeline.conftest import Clock, PlanWith
from tests.runs import run, settings

ALL = "compare.baselines=[interleaved, random, permuted, interleaved_short, interleaved_narrow]"
LAYOUT = ["derive.method=layout", "derive.layout=a d i d", "model.d_ffn=64"]


def chosen(folder: Path, file: Path, *given: str) -> Any:
    run(derive, file, "--run", folder, *settings(*LAYOUT, *given))
    return load_architecture(folder / "architecture.json")


def test_the_equal_cost_is_what_the_layout_was_derived_for(
    experiment_file: Path, tmp_path: Path, plan_with: PlanWith, clock: Clock
) -> None:
    plan = plan_with(*LAYOUT)
    free = chosen(tmp_path / "run", experiment_file)
    assert equal_cost(plan, free) == "flops"
    timed = chosen(tmp_path / "run", experiment_file, "derive.budget.latency=0.9x")
    assert equal_cost(plan, timed) == "latency"
    assert equal_cost(plan_with(*LAYOUT, "compare.equal=parameters"), timed) == "parameters"


@pytest.mark.parametrize("cost", ["flops", "latency"])
def test_every_baseline_of_equal_cost_costs_what_the_chosen_layout_costs(
    experiment_file: Path, tmp_path: Path, plan_with: PlanWith, clock: Clock, cost: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    layout = chosen(tmp_path / "run", experiment_file)
    plan = plan_with(*LAYOUT, ALL, f"compare.equal={cost}")
    entries = entries_of(plan)
    names = [entry.architecture.name for entry in entries]
    assert names[:2] == ["layout-adid", "interleaved"]
    kinds = {name.split("-")[0] for name in names[2:]}
    said = capsys.readouterr().out
    missing = {"random", "permuted", "interleaved"} - kinds
    assert all(kind in said for kind in missing)
    shares = matching(plan, layout, frozenset(), 1).measured(
        [tuple(entry.architecture.blocks) for entry in entries[2:]]
    )
    assert len(shares) >= 2
    assert all(share <= 1 + TOLERANCE for share in shares)
    assert len({entry.architecture.network for entry in entries}) == len(entries)
    assert [entry.share for entry in entries[2:]] == pytest.approx(shares)
    named = {entry.architecture.name: entry.share for entry in entries[2:] if entry.share}
    assert of_equal_cost(cost, named) == said.splitlines()[-1] == entries[0].remarks[-1]


def test_shares_of_throughput_are_called_what_they_are_ratios_of(
    experiment_file: Path, tmp_path: Path, plan_with: PlanWith, clock: Clock
) -> None:
    layout = chosen(tmp_path / "run", experiment_file, "derive.budget.throughput=0.5x")
    plan = plan_with(*LAYOUT)
    assert equal_cost(plan, layout) == "throughput"
    assert matching(plan, layout, frozenset(), 1).cost == "pass time"


def test_a_remark_says_which_baselines_do_not_have_the_same_cost() -> None:
    shares = {"random-0": 0.971, "interleaved-3": 0.8333, "sandwich-3-k1": 0.969, "drop_1": 1.04}
    assert of_equal_cost("flops", shares) == (
        "baselines of equal cost have the flops of the chosen layout, within 3%; these do not: "
        "interleaved-3 0.833x, sandwich-3-k1 0.969x, drop_1 1.040x"
    )


def test_measured_shares_are_times_over_the_chosen_ones_in_the_order_asked_for(
    experiment_file: Path, tmp_path: Path, plan_with: PlanWith, clock: Clock,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    layout = chosen(tmp_path / "run", experiment_file)
    plan = plan_with(*LAYOUT, "compare.equal=latency", "derive.seed=3")
    asked = matching(plan, layout, frozenset(), 1)
    assert asked.request.config.seed == 0, "baselines do not depend on how a layout was derived"
    a, d, i = plan.candidates
    some = [(a, a, a, a), (d, i, i, i), (a, a, a, a)]
    of_chosen = 0.4 + 1.0 + 0.5 + 0.01 + 0.5
    expected = [4.4 / of_chosen, 0.93 / of_chosen, 4.4 / of_chosen]
    assert asked.measured(some) == pytest.approx(expected)
    line = "measuring latency of 2 layouts and the chosen one in turn\n"
    assert line in capsys.readouterr().err
    assert [asked.predicted(one) for one in some] == pytest.approx(expected)


def test_shares_beside_a_filled_layout_are_of_its_own_cost(
    experiment_file: Path, tmp_path: Path, plan_with: PlanWith, clock: Clock
) -> None:
    filled = chosen(
        tmp_path / "run", experiment_file, "derive.budget.parameters=1.1x", "derive.fill=d_ffn"
    )
    plan = plan_with(*LAYOUT, "compare.equal=latency")
    asked = matching(plan, filled, frozenset(), 1)
    a, _, i = plan.candidates
    wide = sum(0.5 * slot.d_ffn / 64 for slot in filled.blocks if slot.kind == "dense")
    of_chosen = 0.4 + 1.0 + 0.01 + wide
    assert asked.predicted((a, i, i, i)) == pytest.approx(1.43 / of_chosen)
    assert asked.measured([(a, i, i, i)]) == pytest.approx([1.43 / of_chosen])


def test_measured_baselines_are_the_same_when_a_comparison_goes_on(
    experiment_file: Path, tmp_path: Path, plan_with: PlanWith, clock: Clock
) -> None:
    layout = chosen(tmp_path / "run", experiment_file)
    plan = plan_with(*LAYOUT, "compare.equal=latency")
    first = matching(plan, layout, frozenset(), 1).interleaved()
    share = matching(plan, layout, frozenset(), 1).measured([first])
    asked = len(clock.asked)
    assert matching(plan, layout, frozenset(), 1).measured([first]) == share
    assert len(clock.asked) == asked
    path = plan.run_dir / FILE
    path.write_text(path.read_text().replace('"key": "', '"key": "0'))
    assert matching(plan, layout, frozenset(), 1).measured([first]) == share
    assert len(clock.asked) == asked + 1, "of another key"
