"""The sides of the claim about a step: who has which allocator, and what is written down."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import step_time
from benchmarks.harness import Side, Timings, rotated
from benchmarks.reference.ceiling import CeilingAttention
from benchmarks.sides import OUR_ALLOCATOR, step_sides
from benchmarks.step_time import SIZES
from tests.benchmarks.test_reference import TINY


def test_the_allocator_alone_differs_between_the_textbooks() -> None:
    sides = step_sides(TINY)
    assert {name: side.keeps_memory for name, side in sides.items()} == {
        "ours": True,
        "textbook": False,
        OUR_ALLOCATOR: True,
        "ceiling": True,
    }
    one, two = sides["textbook"], sides[OUR_ALLOCATOR]
    assert (one.make, one.arguments) == (two.make, two.arguments)


def test_every_round_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def told(sides: Mapping[str, Side], **_: Any) -> Timings:
        for side in sides.values():
            side.make(*side.arguments)()
        return Timings({name: [0.1 * place, 0.2, 0.6] for place, name in enumerate(sides, 1)})

    monkeypatch.setattr("benchmarks.harness.in_turn", told)
    monkeypatch.setitem(SIZES, "small", TINY)
    path = tmp_path / "found.json"
    assert step_time.main(["--json", str(path)]) == 0
    found = json.loads(path.read_text())
    rounds = {name: row["rounds_ms"] for name, row in found["sides"].items()}
    assert rounds["textbook"] == pytest.approx([200, 200, 600])
    assert rounds[OUR_ALLOCATOR] == pytest.approx([300, 200, 600])
    assert found["speed"]["ours_over_textbook"] == pytest.approx(1.0)
    assert set(found["speed"]) >= {"ours_over_textbook_with_our_allocator", "ours_over_ceiling"}


def test_each_turn_begins_with_another_side() -> None:
    sides = {"a": 1, "b": 2, "c": 3}
    assert [[*rotated(sides, turn)] for turn in range(4)] == [
        [*"abc"],
        [*"bca"],
        [*"cab"],
        [*"abc"],
    ]
    assert rotated(sides, 2) == sides


def test_the_ceiling_multiplies_as_we_do(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []

    def project(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        taken.append(weight)
        return x @ weight.T

    block = CeilingAttention(8, 2, 0.0)
    x_BTD = torch.randn(2, 3, 8)
    wanted = block(x_BTD)
    monkeypatch.setattr("benchmarks.reference.ceiling.project", project)
    torch.testing.assert_close(block(x_BTD), wanted)
    assert [id(weight) for weight in taken] == [id(block.qkv.weight), id(block.output.weight)]
