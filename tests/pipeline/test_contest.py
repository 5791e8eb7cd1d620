"""Opponents of a run's chosen layout: which cost is equal, and how it is known."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import compare
import derive
from model import load_architecture
from nas.opponents.base import TOLERANCE
from nas.statistics.intervals import at_cost
from pipeline.compare import contestants, equal_costs
from pipeline.contest import contest, equal_cost
from tests.pipeline.conftest import PlanWith
from tests.pipeline.test_costs import Clock, clock
from tests.runs import run, settings

__all__ = ["clock"]
ALL = "compare.opponents=[interleaved, random, permuted, interleaved_short, interleaved_narrow]"
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
def test_every_opponent_of_equal_cost_costs_what_the_chosen_layout_costs(
    experiment_file: Path, tmp_path: Path, plan_with: PlanWith, clock: Clock, cost: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    layout = chosen(tmp_path / "run", experiment_file)
    plan = plan_with(*LAYOUT, ALL, f"compare.equal={cost}")
    entries = contestants(plan)
    names = [entry.architecture.name for entry in entries]
    assert names[:2] == ["layout-adid", "interleaved"]
    kinds = {name.split("-")[0] for name in names[2:]}
    said = capsys.readouterr().out
    missing = {"random", "permuted", "interleaved"} - kinds
    assert all(kind in said for kind in missing)
    shares = contest(plan, layout, frozenset(), 1).measured(
        [tuple(entry.architecture.slots) for entry in entries[2:]]
    )
    assert len(shares) >= 2
    assert all(share <= 1 + TOLERANCE for share in shares)
    assert len({entry.architecture.network for entry in entries}) == len(entries)


def test_a_layout_whose_width_was_filled_has_opponents_too(
    experiment_file: Path, tmp_path: Path, plan_with: PlanWith, clock: Clock
) -> None:
    filled = chosen(
        tmp_path / "run", experiment_file, "derive.budget.parameters=1.1x", "derive.fill=d_ffn"
    )
    assert {slot.label for slot in filled.slots} - {"attention", "dense", "identity"}
    for cost in ("parameters", "latency"):
        asked = contest(plan_with(*LAYOUT, f"compare.equal={cost}"), filled, frozenset(), 1)
        assert asked.measured([tuple(filled.slots)]) == pytest.approx([1.0])


def test_the_comparison_ends_with_what_is_saved_and_given_up(
    experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen(tmp_path / "run", experiment_file)
    given = ["compare.seeds=[0, 1]", "compare.opponents=[interleaved, permuted]"]
    run(compare, experiment_file, "--run", tmp_path / "run", *settings(*LAYOUT, *given))
    table = json.loads((tmp_path / "run/comparison.json").read_text())
    *_, sentence = table["verdict"].splitlines()
    rows = {row["name"]: row for row in table["rows"]}
    one, other = rows["layout-adid"], rows["interleaved"]
    found = re.fullmatch(
        r"at ([\d.]+)x of interleaved's latency its nats are ([+-][\d.]+) \[[^]]+\] \(n = 2\)",
        sentence,
    )
    assert found is not None, sentence
    assert float(found[1]) == pytest.approx(one["latency_ms"] / other["latency_ms"], abs=0.006)
    assert float(found[2]) == pytest.approx(
        one["nats_per_token"] - other["nats_per_token"], abs=6e-5
    )
    assert sentence in capsys.readouterr().out
    equal, *_ = table["remarks"]
    assert equal.startswith("equal to layout-adid within 3%: interleaved: ")
    assert re.search(r"permuted-0: parameters, FLOPs", equal)


def test_one_seed_gives_no_interval() -> None:
    assert at_cost(0.657, "latency", "interleaved", [4.5], [4.4]) == (
        "at 0.66x of interleaved's latency its nats are +0.1000 (n = 1, no interval)"
    )


def test_costs_that_are_not_known_are_not_equal() -> None:
    row = {"parameters": 100, "flops_per_token": 10.0, "latency_ms": None, "name": "one"}
    other = {"parameters": 102, "flops_per_token": 11.0, "latency_ms": 5.0, "name": "other"}
    assert equal_costs([row, other]) == ["equal to one within 3%: other: parameters"]
    assert equal_costs([row]) == []
