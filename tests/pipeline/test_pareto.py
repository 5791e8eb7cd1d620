"""The front of a cost and the SuperNet's scores."""

import csv
import json
from pathlib import Path

import pytest

import compare
import derive
from model import load_architecture, network_of, parse_layout
from tests.pipeline.conftest import Clock, plan_of_run
from tests.runs import refused, run, settings


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
    assert len(counts) >= 3, "of every cost"
    shown = capsys.readouterr().out
    assert "times reference: multiple of interleaved" in shown
    assert "with the SuperNet's weights, not those of a training" in shown
    assert not (searched / "architecture.json").exists(), "nothing is chosen"
    names = json.loads((searched / "pareto.json").read_text())["front"]
    chosen = load_architecture(searched / f"architectures/{names[0]}.json")
    assert chosen.evidence is not None
    assert chosen.evidence.inherited is not None


def test_a_front_of_times_is_measured_whole(searched: Path, clock: Clock) -> None:
    clock.whole = {"d i i i": 3.0, "i i d i": 3.0, "i d i i": 3.0, "i i i d": 3.0}
    run(derive, searched, "--pareto", *settings("derive.top=4"))
    rows = checked(searched)
    assert {"interleaved", "par", "sandwich"} == {row["rule"] for row in rows} - {""}
    for row in rows:
        words = row["layout"].split()
        ms = 0.4 + sum({"a": 1.0, "d": 0.5, "i": 0.01}[word] for word in words)
        assert float(row["cost"]) == pytest.approx(
            clock.whole.get(row["layout"], 1.0) * ms, rel=1e-3
        )
    summary = json.loads((searched / "pareto.json").read_text())
    assert (summary["cost"], summary["unit"]) == ("latency", "ms")
    (name, *_) = summary["front"]
    architecture = load_architecture(searched / f"architectures/{name}.json")
    assert [timed.name for timed in architecture.costs.times] == ["latency"]


def test_a_front_goes_across_the_budget(searched: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = settings("derive.top=4", "derive.budget.flops=0.5x")
    run(derive, searched, "--pareto", "flops", *few)
    assert "derive.budget and derive.fill: have no part in a front" in capsys.readouterr().err
    assert max(float(row["times_reference"]) for row in checked(searched)) > 0.5


@pytest.mark.slow
def test_compare_trains_the_whole_front(searched: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = settings("derive.top=1", "derive.gap=false", "retrain.steps=4", "compare.baselines=[par]")
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
