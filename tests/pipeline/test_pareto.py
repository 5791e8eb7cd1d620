"""The front of a cost and the SuperNet's scores."""

import csv
import itertools
import json
from pathlib import Path

import pytest

import compare
import derive
from model import load_architecture, network_of, parse_layout
from pipeline import pareto
from pipeline.pareto import Point, front
from tests.pipeline.conftest import Clock, plan_of_run
from tests.runs import refused, run, settings


class Fixed:
    """A score that is a number."""

    def __init__(self, nats: float) -> None:
        self.nats_per_token = nats


def points(*values: tuple[float, float]) -> list[Point]:
    return [Point((), cost, Fixed(nats)) for cost, nats in values]  # type: ignore[arg-type]


def test_the_front_is_what_no_other_point_dominates() -> None:
    every = points((3, 1), (1, 3), (2, 2), (2, 2.5), (2.5, 2), (1, 3), (4, 1), (0.5, 9))
    assert [point.values for point in front(every)] == [(0.5, 9), (1, 3), (2, 2), (3, 1)]
    for chosen, other in itertools.product(front(every), every):
        assert not (other.cost < chosen.cost and other.score.nats_per_token <= chosen.values[1])
    assert front([]) == []


def table(folder: Path) -> list[dict[str, str]]:
    with (folder / "pareto.csv").open() as file:
        return list(csv.DictReader(file))


def checked(folder: Path) -> list[dict[str, str]]:
    """The rows of a front, which hold together."""
    rows, summary = table(folder), json.loads((folder / "pareto.json").read_text())
    plan = plan_of_run(folder)
    networks = [network_of(parse_layout(row["layout"], plan.candidates), None) for row in rows]
    assert len(set(networks)) == len(networks), "each network once"
    costs = [float(row["cost"]) for row in rows]
    assert costs == sorted(costs)
    best = float("inf")
    for row in rows:
        # The cheapest comes first: a row is of the front where it beats all before it.
        assert row["front"] == str(int(float(row["nats_per_token"]) < best)), row
        best = min(best, float(row["nats_per_token"]))
    on_front = [row for row in rows if row["front"] == "1"]
    layouts = [
        load_architecture(folder / f"architectures/{name}.json").letters()
        for name in summary["front"]
    ]
    assert layouts == [row["layout"] for row in on_front]
    by_rule = {row["rule"]: row for row in rows if row["rule"]}
    assert by_rule["interleaved"]["layout"] == summary["reference"] == "a d a d"
    assert float(by_rule["interleaved"]["times_reference"]) == 1.0
    return rows


def test_a_front_of_a_counted_cost(searched: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(derive, searched, "--pareto", "flops", *settings("derive.top=4", "derive.least_context=0"))
    rows = checked(searched)
    plan = plan_of_run(searched)
    for row in rows:
        cost = plan.costs(parse_layout(row["layout"], plan.candidates))
        assert float(row["cost"]) == pytest.approx(cost, abs=1e-6)
    counts = {row["layout"].count("i") for row in rows}
    assert counts >= {0, 2, 4}, "of every cost"
    shown = capsys.readouterr().out
    assert "x interleaved" in shown
    assert "what a training gives is another matter" in shown
    assert not (searched / "architecture.json").exists(), "nothing is chosen"
    names = json.loads((searched / "pareto.json").read_text())["front"]
    chosen = load_architecture(searched / f"architectures/{names[0]}.json")
    assert chosen.evidence is not None
    assert chosen.evidence.inherited is not None


def test_a_front_of_times_is_measured_whole(
    searched: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pareto, "_MOST_TIMED", 9)
    clock.whole = {"d i i i": 3.0, "i i d i": 3.0, "i d i i": 3.0, "i i i d": 3.0}
    run(derive, searched, "--pareto", *settings("derive.top=4"))
    rows = checked(searched)
    assert len(rows) == 9
    assert {"interleaved", "par", "sandwich"} == {row["rule"] for row in rows} - {""}
    for row in rows:
        words = row["layout"].split()
        ms = 0.4 + sum({"a": 1.0, "d": 0.5, "i": 0.01}[word] for word in words)
        assert float(row["cost"]) == pytest.approx(
            clock.whole.get(row["layout"], 1.0) * ms, rel=1e-3
        )
    summary = json.loads((searched / "pareto.json").read_text())
    assert (summary["cost"], summary["unit"], summary["measured"]) == ("latency", "ms", True)
    (name, *_) = summary["front"]
    architecture = load_architecture(searched / f"architectures/{name}.json")
    assert [timed.name for timed in architecture.costs.times] == ["latency"]


def test_a_front_keeps_the_budget_of_other_costs(
    searched: Path, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    """Counted limits hold before layouts are scored, limits of times when they are measured."""
    clock.whole = {"d d i i": 9.0}
    plan = plan_of_run(searched)
    flops = plan.costs(parse_layout("a d i i", plan.candidates))
    limits = f"derive.budget={{flops: {flops!r}, decode: 0.9x, latency: 0.1x}}"
    run(derive, searched, "--pareto", *settings("derive.top=4", limits))
    rows = table(searched)
    for row in rows:
        layout = parse_layout(row["layout"], plan.candidates)
        slow = row["layout"] == "d d i i"
        assert row["over"] == str(int(plan.costs(layout) > flops * (1 + 1e-9) or slow)), row
        assert row["front"] <= str(1 - int(row["over"]))
    (reference,) = [row for row in rows if row["rule"] == "interleaved"]
    assert (reference["over"], float(reference["times_reference"])) == ("1", 1.0)
    assert max(float(row["times_reference"]) for row in rows if row["over"] == "0") > 0.1
    shown = capsys.readouterr()
    assert ", over the budget" in shown.out
    assert f"its layouts keep decode 0.9x, flops {flops!r} (x of interleaved)" in shown.out
    assert "derive.budget.latency: has no part in a front of latency" in shown.err
    summary = json.loads((searched / "pareto.json").read_text())
    assert summary["limits"] == {"decode": "0.9x", "flops": pytest.approx(flops)}
    assert f"the front of {summary['scored']} networks that were scored" in shown.out
    names = json.loads((searched / "pareto.json").read_text())["front"]
    assert len(names) == sum(int(row["front"]) for row in rows) > 0


@pytest.mark.slow
def test_compare_trains_the_whole_front(searched: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = settings("derive.top=1", "derive.gap=false", "retrain.steps=4", "compare.opponents=[par]")
    steps = [*few, *settings("retrain.optimiser.warmup_steps=0")]
    run(derive, searched, *steps)
    line = refused(compare, capsys, searched, "--pareto", *steps)
    assert line.endswith(f"run derive.py {searched} --pareto first")
    run(derive, searched, "--pareto", "flops", *steps)
    run(compare, searched, "--pareto", *steps)
    comparison = json.loads((searched / "comparison.json").read_text())
    roles = [row["role"] for row in comparison["rows"]]
    names = json.loads((searched / "pareto.json").read_text())["front"]
    assert roles[0] == "searched"
    assert roles.count("front") + sum("of the front" in each for each in comparison["remarks"]) == (
        len(names)
    )
    assert {row["name"] for row in comparison["rows"] if row["role"] == "front"} <= set(names)
