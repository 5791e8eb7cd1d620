"""Costs of a run's layouts against the models themselves; budgets kept, measured, and refused."""

import itertools
import json
import math
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

import derive
from model import load_architecture
from nas.costs.model import REFERENCE
from pipeline.costs import cost_model, time_models
from pipeline.summary import parameter_count
from tests.pipeline.conftest import MS, Clock, PlanWith
from tests.runs import refused, run, settings

WIDE = "{kind: dense, label: dense_wide, d_ffn: 40}"
NARROW = "{kind: attention, label: narrow, n_heads: 1, d_head: 4, memory: 3}"
CANDIDATES = f"model.candidates=[attention, dense, identity, {WIDE}, {NARROW}]"
OPTIONS = ["model.norm=scale", "model.norm_position=post", "model.d_embedding=9"]
REZERO = ["model.rezero=true", "model.token_shift=true", "model.tie_blocks=2"]


@pytest.mark.parametrize(
    "given", [[], ["model.tie_blocks=1"], ["model.tie_blocks=2"], OPTIONS, REZERO]
)
def test_counted_costs_of_layouts_are_those_of_their_models(
    plan_with: PlanWith, given: list[str]
) -> None:
    plan = plan_with(CANDIDATES, "model.n_blocks=3", *given)
    parameters, flops = map(cost_model(plan).counted, ("parameters", "flops"))
    for layout in itertools.product(plan.candidates, repeat=3):
        model = plan.network([[candidate] for candidate in layout])
        assert parameters(layout) == parameter_count(model)
        assert flops(layout) == pytest.approx(plan.flops_per_token(model), rel=1e-12)


@pytest.mark.parametrize("shifted", [False, True])
def test_cache_bytes_are_those_of_the_state_that_a_stream_keeps(
    plan_with: PlanWith, shifted: bool
) -> None:
    shift = f"model.token_shift={shifted}".lower()
    plan = plan_with(CANDIDATES, "model.n_blocks=2", "model.memory=11", shift)
    cost = cost_model(plan).counted("cache")
    for layout in itertools.product(plan.candidates, repeat=2):
        model = plan.network([[candidate] for candidate in layout]).eval()
        with torch.inference_mode():
            state = model.initial_state(1, cached=True)
            for _ in range(13):
                _, state, _ = model(torch.zeros(1, 1, dtype=torch.int64), state)
        kept = [one for states in (*state.blocks, state.memory) for one in states]
        assert cost(layout) == sum(
            one.numel() * one.element_size() for one in kept if one is not None
        )
    # keys and values: 2 x rows x heads x width x 4 bytes; the row of the token before
    row = 16 * 4 if shifted else 0
    wanted = [2 * 11 * 16 * 4 + row, row, 0, row, 2 * 3 * 4 * 4 + row]
    assert cost_model(plan).state_bytes(plan.candidates) == wanted


def test_costs_are_those_of_the_whole_span_whatever_one_begins_with(
    plan_with: PlanWith, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model keeps and takes what it has learnt to; a budget holds for the most."""
    asked = "{kind: adaptive_span, span: 12, ramp: 2, first_span: 0.1}"
    plan = plan_with(f"model.candidates=[attention, {asked}]", "model.memory=11")
    costs = cost_model(plan)
    assert costs.state_bytes(plan.candidates[1:]) == [2 * 11 * 16 * 4]
    whole = [12.0, 12.0]
    assert costs.build(plan.candidates[1:]).describe()[0]["numbers"]["span_keys"] == whole
    timed = Mock()
    monkeypatch.setattr("pipeline.costs.measure_latency", timed)
    for trained in (True, False):
        time_models(plan, {"x": plan.network([plan.candidates[1:]])}, trained=trained)
        model = timed.call_args.args[0]["x"]
        assert (model.describe()[0]["numbers"]["span_keys"] == whole) != trained


def test_a_reference_without_a_cache_serves_absolute_budgets(
    searched: Path, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    reference = settings("derive.reference=d d d d")
    given = [*reference, *settings("derive.budget.cache=2KiB", "derive.fill=d_ffn")]
    assert derived(searched, *given).letters().count("a") <= 2
    assert derived(searched, *given, "--method", "par").letters().count("a") <= 2
    line = refused(derive, capsys, searched, *reference, *settings("derive.budget.cache=0.5x"))
    assert line == "derive.budget.cache: 0.5x of d d d d, which costs 0; give bytes"


def derived(folder: Path, *arguments: Any) -> Any:
    run(derive, folder, *arguments)
    return load_architecture(folder / "architecture.json")


@pytest.mark.parametrize("method", ["argmax", "top_k", "sampled", "beam", "evolution", "random"])
def test_every_method_that_chooses_keeps_budgets_of_counted_costs(
    searched: Path, method: str
) -> None:
    budget = ["derive.budget.parameters=0.999x", "derive.budget.cache=0.5x"]
    architecture = derived(searched, "--method", method, *settings(*budget))
    layout = architecture.letters().split()
    assert layout.count("a") <= 1  # of interleaved's two
    assert architecture.name.endswith("-parameters0.999x-cache0.5x")
    assert architecture.costs.times == ()


def test_a_limited_time_is_measured_whole_beside_the_reference(
    searched: Path, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = settings("derive.budget.latency=0.7x", "derive.least_context=0")
    architecture = derived(searched, *asked)
    (timed,) = architecture.costs.times
    assert timed.reference == "a d a d"
    assert timed.reference_ms == pytest.approx(3.4)
    assert timed.most_ms == pytest.approx(0.7 * 3.4)
    assert timed.ms <= timed.most_ms
    assert timed.ms == pytest.approx(0.4 + sum(MS[slot.label] for slot in architecture.blocks))
    assert timed.key["threads"] == "1"
    _, whole_run = clock.asked
    assert whole_run[0] == REFERENCE
    assert len(whole_run) >= 5
    shown = capsys.readouterr().out
    assert f"latency {timed.ms:.4g} ms, {timed.ms / 3.4:.3f}x of a d a d (at most 0.700x)" in shown
    again = json.loads((searched / "architecture.json").read_text())
    assert again["costs"]["times"][0]["reference"] == "a d a d"


def test_throughput_is_told_in_tokens_per_second(
    searched: Path, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    """64 tokens a pass, 3.4 ms of the reference."""
    given = settings("derive.budget.throughput=1.25x")
    architecture = derived(searched, *given)
    (timed,) = architecture.costs.times
    assert timed.most_ms == pytest.approx(3.4 / 1.25)
    shown = capsys.readouterr().out
    assert (
        f"throughput {timed.ms:.4g} ms per pass, {timed.ms / 3.4:.3f}x of a d a d (at most 0.800x)"
        ", measured in turn"
    ) in shown
    line = refused(derive, capsys, searched, *given, "--method", "interleaved")
    assert "x of interleaved: throughput by 20.0% (too few tokens per second); give" in line
    line = refused(derive, capsys, searched, *settings("derive.budget.throughput=99x"))
    assert line.startswith(
        "derive.budget.throughput: no layout is within 1,863,529 tokens per second (99.000x"
    )


def test_after_one_that_is_over_when_measured_comes_the_next_best_be_it_its_twin(
    searched: Path, clock: Clock
) -> None:
    budget = settings("derive.budget.latency=0.7x", "derive.least_context=0")
    first = derived(searched, "--method", "argmax", *budget)
    pi = first.evidence.pi
    # Networks within the budget by their likeliest layout, in order.
    likelihood: dict[str, tuple[float, str]] = {}
    for layout in itertools.product(MS, repeat=4):
        if 0.4 + sum(MS[label] for label in layout) <= 0.7 * 3.4:
            value = math.prod(pi_C[label] for pi_C, label in zip(pi, layout, strict=True))
            network = " ".join(label[0] for label in layout if label != "identity")
            letters = " ".join(label[0] for label in layout)
            likelihood[network] = max(likelihood.get(network, (0.0, "")), (value, letters))
    ordered = [letters for _, letters in sorted(likelihood.values(), reverse=True)]
    assert first.letters() == ordered[0]
    for over in range(1, 4):
        clock.whole = dict.fromkeys(ordered[:over], 9.0)
        clock.asked.clear()
        next_best = derived(searched, "--method", "argmax", *budget)
        assert next_best.letters() == ordered[over]
        measured = [letters for asked in clock.asked for letters in asked[1:]]
        assert len(set(measured)) == len(measured), "none twice"


def test_the_score_of_a_layout_that_was_not_the_best_is_its_own(
    searched: Path, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--method", "top_k", *settings("derive.budget.latency=0.7x")]
    first = derived(searched, *given)
    clock.whole = {first.letters(): 9.0}
    second = derived(searched, *given)
    assert second.letters() != first.letters()
    rows = (searched / f"architectures/{second.name}.csv").read_text().splitlines()
    nats = {row.split(",")[0]: row for row in rows[1:]}[second.letters()]
    assert f"{second.evidence.inherited.nats_per_token:.6f}" in nats
    assert second.evidence.inherited != first.evidence.inherited
    assert second.evidence.method.endswith("; number 2 is taken, as better ones exceed the budget")
    assert "budget: latency 0.7x of interleaved" in capsys.readouterr().out


@pytest.mark.parametrize("off", [0.0, 0.06])
def test_what_is_predicted_over_by_less_than_predictions_err_is_measured_too(
    searched: Path, clock: Clock, off: float
) -> None:
    clock.off = off
    asked = settings("derive.budget.latency=0.7x", "derive.least_context=0")
    architecture = derived(searched, "--method", "argmax", *asked)
    (timed,) = architecture.costs.times
    assert timed.ms <= timed.most_ms
    _, *whole_runs = clock.asked
    letters = {label[0]: ms for label, ms in MS.items()}
    times = [
        0.4 + sum(letters[kind] for kind in one.split()) for run in whole_runs for one in run[1:]
    ]
    assert (max(times) > timed.most_ms) == bool(off)


def test_a_budget_that_nothing_keeps_when_measured_is_refused(
    searched: Path, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    clock.whole = 100.0
    before = {path.name for path in searched.iterdir()}
    line = refused(derive, capsys, searched, *settings("derive.budget.latency=0.7x"))
    assert "measured) exceeds latency 0.7x of interleaved: latency by " in line
    assert "start the same command again, which measures these again" in line
    assert {path.name for path in searched.iterdir()} == before


@pytest.mark.parametrize("reference", ["ratatouille", "random", "argmax", "layout", "a d", "a x d"])
def test_a_reference_that_is_no_layout_is_refused(
    searched: Path, capsys: pytest.CaptureFixture[str], reference: str
) -> None:
    given = settings("derive.budget.flops=0.9x", f"derive.reference={reference}")
    line = refused(derive, capsys, searched, *given)
    assert "derive.reference: " in line
    assert line.endswith("give a layout in letters, or one of interleaved, par, sandwich")


def test_a_rule_that_breaks_the_budget_is_refused_and_one_that_keeps_it_is_not(
    searched: Path, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [*settings("derive.budget.latency=0.9x"), "--method"]
    line = refused(derive, capsys, searched, *given, "interleaved")
    assert line.startswith(
        "derive.budget: a d a d (interleaved) exceeds latency 0.9x of interleaved: latency by "
        "11.1%; give a larger one, or a method that chooses (argmax, "
    )
    capsys.readouterr()
    one = ["derive.layout=a d d d", "derive.budget={flops: 15k}"]
    run(derive, searched, *settings(*one), "--method", "layout")
    capsys.readouterr()
    both = [*one[:1], "derive.budget={cache: 0.7x, flops: 15k}"]
    run(derive, searched, *settings(*both), "--method", "layout")
    (line,) = (one for one in capsys.readouterr().out.splitlines() if one.startswith("budget: "))
    assert line.startswith("budget: flops 15k (")
    assert line.endswith("), cache 0.7x of interleaved (71.4% used)"), "half of interleaved's"
    run(derive, searched, *given, "par")
