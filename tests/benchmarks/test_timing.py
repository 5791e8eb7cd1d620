"""Benchmarks of time at tiny sizes: each runs to its end, and its figures follow from its times."""

import importlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import device_step, processes_time
from benchmarks.generation import next_token
from benchmarks.harness import Side, Timings, quiet_rounds
from benchmarks.processes_time import BASE, SIDES, compared, rounds_of
from benchmarks.shapes import SIZES, Shape
from benchmarks.sides import OUR_ALLOCATOR, arithmetic
from benchmarks.step_scaling import against_memory
from benchmarks.timing_company import COMPANIES, EXPERIMENT, ONE, OTHER, ratios_of
from model import parse_layout
from pipeline.experiment import load_experiment
from tests.benchmarks.test_reference import TINY
from tests.runs import ROOT, Capture, refused


def each_once(sides: Mapping[str, Side], **_: Any) -> Timings:
    """Takes one step of each side and says that each took longer than the one before."""
    for side in sides.values():
        side.make(*side.arguments)()
    return Timings({name: [0.1 * place, 0.2, 0.6] for place, name in enumerate(sides, 1)})


@pytest.fixture
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.harness.in_turn", each_once)
    monkeypatch.setattr(device_step, "peak_of", lambda make, given: 7.0)
    for name in SIZES:
        monkeypatch.setitem(SIZES, name, TINY)


@pytest.mark.usefixtures("_tiny")
@pytest.mark.parametrize(
    ("script", "options", "sides"),
    [
        ("step_time", [],
         {"ours", "ours, rope", "ours, none", "textbook", OUR_ALLOCATOR, "ceiling"}),
        ("attention_paths", ["--shapes", "paper", "--dtype", "bfloat16"], None),
        *(
            ("device_step", ["--device", "cpu", "--compiled", "no", "--precision", precision],
             {"with_bias", "fused"})
            for precision in ("float32", "bfloat16")
        ),
    ],
)  # fmt: skip
def test_a_script_runs_to_its_end(
    script: str, options: list[str], sides: set[str] | None, tmp_path: Path
) -> None:
    path = tmp_path / "found.json"
    main = importlib.import_module(f"benchmarks.{script}").main
    assert main([*options, "--json", str(path)]) == 0
    found = json.loads(path.read_text())
    if sides is None:
        (row,) = found["shapes"]
        assert set(row["paths"]) == {"with_bias", "fused"}
        return
    assert set(found["sides"]) == sides
    all_flops = arithmetic(TINY)
    for name, side in found["sides"].items():
        per_s = side["tokens_per_s"]
        assert per_s == pytest.approx(1e3 * TINY.batch * TINY.segment / side["median_ms"])
        share = per_s * all_flops.get(name, all_flops["ours"]) / 1e9 / found["matmul_gflops"]
        assert side["share_of_matmul"] == pytest.approx(share)


def test_a_gpu_that_is_not_there_is_one_line(capsys: Capture) -> None:
    assert "--device: cuda:99 is not there" in refused(device_step, capsys, "--device", "cuda:99")


def test_the_sides_of_generation_agree_and_repeat_themselves() -> None:
    shape = Shape(16, 4, 2, 24, 1, 1, memory=21, dropout=0.0, vocabulary=60, cutoffs=(20,))
    kept, anew = next_token(shape, True), next_token(shape, False)
    for _ in range(3):
        torch.testing.assert_close(kept(), anew(), rtol=0, atol=1e-5)


def test_a_round_that_others_disturb_is_taken_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    others = iter([9.0, 0.0, 9.0, 0.0])
    monkeypatch.setattr("benchmarks.harness.other_cores", lambda *_: next(others))
    figures = [{"one": number} for number in (5.0, 1.0, 6.0, 2.0)]
    turns = list[int]()

    def take(turn: int) -> tuple[dict[str, float], float]:
        turns.append(turn)
        return figures[len(turns) - 1], 0.0

    assert quiet_rounds(take, 2) == [{"one": 1.0}, {"one": 2.0}]
    assert turns == [0, 0, 1, 1]
    monkeypatch.setattr("benchmarks.harness.other_cores", lambda *_: 9.0)
    with pytest.raises(ValueError, match=r"other processes use 9\.0 cores"):
        quiet_rounds(lambda turn: ({}, 0.0), 2)


def test_memories_are_compared_with_the_shapes_own_round_by_round() -> None:
    shapes = {str(memory): replace(TINY, memory=memory) for memory in (0, 4, 40)}
    flops = {name: arithmetic(shape)["ours"] for name, shape in shapes.items()}
    grown = flops["40"] / flops["4"]
    timings = Timings({"0": [1.0, 2.0], "4": [1.0, 2.0], "40": [1.3 * grown, 2.6 * grown]})
    found = against_memory(shapes, timings, "4")
    rows = found["memories"]
    assert rows["4"]["excess_percent"] == 0
    assert rows["40"]["excess_percent"] == pytest.approx(30)
    assert found["worst_percent"] == pytest.approx(max(30, rows["0"]["excess_percent"]))


def test_speeds_of_processes_are_compared_within_a_round() -> None:
    first, second, _ = SIDES
    rounds = [
        {first: 0.4, second: 0.25, BASE: 0.2},
        {first: 0.8, second: 0.44, BASE: 0.4},
        {first: 0.8, second: 0.5, BASE: 0.4},
    ]
    rows = compared(rounds, tokens=1000)
    assert [row["speed"] for row in rows.values()] == pytest.approx([0.5, 0.8, 1.0])
    assert rows[second]["tokens_per_s"] == pytest.approx(1000 / 0.44)


def test_each_round_begins_with_another_side(monkeypatch: pytest.MonkeyPatch) -> None:
    order = []
    monkeypatch.setattr(processes_time, "seconds", lambda *given: order.append(given[-1]) or 1.0)
    monkeypatch.setattr("benchmarks.harness.read_cpu", lambda: None)
    rounds = rounds_of("small", 3, 4)
    one, two, three = SIDES.values()
    assert order == [one, two, three, two, three, one, three, one, two, one, two, three]
    assert [set(each) for each in rounds] == [set(SIDES)] * 4


def test_the_first_pass_of_a_turn_is_behind_another_model_and_the_second_behind_its_own() -> None:
    calls, now_s = list[str](), 0.0
    lasts_s = {ONE: [4.0, 2.0], OTHER: [6.0, 5.0], "a": [1.0, 1.0]}

    def run(name: str) -> None:
        nonlocal now_s
        now_s += lasts_s[name][calls.count(name) % 2]
        calls.append(name)

    passes = {name: (lambda name=name: run(name)) for name in lasts_s}
    ratios = ratios_of(passes, 3, clock=lambda: now_s)
    assert ratios == {"another model": 1.5, "itself": 2.5}
    model = load_experiment(ROOT / EXPERIMENT, []).model
    for letters in (ONE, OTHER, *(layout for company in COMPANIES.values() for layout in company)):
        assert len(parse_layout(letters, model.completed_candidates())) == model.n_blocks
