"""Spaces of networks: LayoutBench's 64, and all of attention, dense and nothing in a few slots."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from benchmarks.layoutbench.table import read_table
from model import Layout
from nas.costs.budget import LayoutCost, Limit
from nas.derivation import method_of
from nas.derivation.base import Derived, Request
from nas.derivation.config import DeriveConfig
from nas.derivation.space import rules_of
from nas.derivation.training import NONE, Length, Space, Training
from tests import tiny

TABLE = Path(__file__).parents[3] / "benchmarks" / "results" / "layoutbench.csv"
KINDS = ("attention", "dense")


class Asked(NamedTuple):
    """A training of a layout that a method asked for."""

    layout: Layout
    length: Length
    seed: int


COST = LayoutCost("flops", {"attention": 3.0, "dense": 2.0, "identity": 0.0}, 1.0)


@dataclass
class MadeUp:
    """Trainings whose nats are made up, and what was asked for; within so many FLOPs."""

    nats: Callable[[Asked], float]
    asked: list[list[Asked]] = field(default_factory=list)

    def __call__(
        self, layouts: Sequence[Layout], length: Length, seeds: Sequence[int]
    ) -> list[float]:
        self.asked.append([Asked(layout, length, seed) for seed in seeds for layout in layouts])
        return [self.nats(one) for one in self.asked[-1]]

    def derive(
        self, method: str, budget: float, slots: int, given: dict[str, Any], **config: Any
    ) -> Derived:
        candidates = tiny.candidates("attention", "dense", "identity")
        request = Request(
            DeriveConfig.model_validate({"method": method, **config}), candidates, slots, COST,
            limits=(Limit(COST, budget),), train=self, **given,
        )  # fmt: skip
        return method_of(method)(request)


def space_of(rows: list[str], slots: int) -> Space:
    """Networks by their letters."""
    kind_NL = np.full((len(rows), slots), NONE, dtype=np.int8)
    for row, letters in zip(kind_NL, rows, strict=True):
        row[: len(letters)] = ["ad".index(letter) for letter in letters]
    flops_N = np.array([10.0 + 3 * row.count("a") + 2 * row.count("d") for row in rows])
    space = Space(kind_NL, KINDS, flops_N)
    return replace(space, rules=rules_of(space, 0, 1))


def letters_of(space: Space, number: int) -> str:
    """A network in letters."""
    return "".join("ad"[kind] for kind in space.kind_NL[number] if kind != NONE)


@pytest.fixture(scope="session")
def bench() -> Space:
    return space_of(read_table(TABLE).layouts, 6)


@pytest.fixture(scope="session")
def bench_results(bench: Space) -> dict[Training, float]:
    """The table's trainings, and half-length ones made up of it: worse, and noisy."""
    nats = read_table(TABLE).nats("valid")
    generator = np.random.default_rng(0)
    results = dict[Training, float]()
    for number in range(len(bench)):
        of_seeds = nats[letters_of(bench, number)]
        results[Training(number, "half", 0)] = of_seeds[0] + 0.3 + generator.normal(scale=0.02)
        for seed, value in enumerate(of_seeds, start=1):
            results[Training(number, "full", seed)] = value
    return results
