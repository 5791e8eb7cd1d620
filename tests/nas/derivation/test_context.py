"""No layout without a block that reads earlier tokens is derived, nor is one a baseline."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from model import Layout, parse_layout, reads_context
from nas.costs.budget import LayoutCost, Limit
from nas.derivation import DERIVATIONS, OF_MODEL, method_of
from nas.derivation.base import Request, context_limit
from nas.derivation.config import DeriveConfig
from nas.derivation.training import Length
from nas.statistics.paired_scores import Score
from tests import tiny
from tests.nas.derivation.test_derivation import write

READING = ["attention", "gated_delta", "short_conv", "linear_attention"]
# All that sees the current token alone; the last ones by their options.
BLIND = [
    "dense",
    "identity",
    "persistent",
    "mixture_of_experts",
    {"kind": "attention", "label": "attention_of_one", "window": 1},
    {"kind": "short_conv", "label": "conv_of_one", "kernel": 1},
]
FEW: dict[str, Any] = {
    "samples": 300, "evaluations": 9, "population": 4, "generations": 1, "top": 3,
    "trainings": {"best": 1, "seeds": 1, "half": 40},
}  # fmt: skip


def reading(layout: Layout) -> int:
    return sum(map(reads_context, layout))


class Case:
    """A space, a search that likes what is blind, a budget and a method, all by a seed."""

    def __init__(self, seed: int, folder: Path) -> None:
        draw = self.draw = np.random.default_rng(seed)
        methods = sorted({*DERIVATIONS} - {"layout", *OF_MODEL})
        method = methods[seed % len(methods)]
        names: list[Any] = [READING[draw.integers(len(READING))], *draw.permutation(BLIND)[:2]]
        if method in ("trained", "predictor", "interleaved", "par", "sandwich") or seed % 3 == 0:
            names = ["attention", "dense", *names[1:]]
        unique = {str(name): name for name in names}
        self.candidates = tiny.candidates(*unique.values())
        self.slots = int(draw.integers(1, 6))
        labels = [candidate.label for candidate in self.candidates]
        alpha_LC = draw.normal(size=(self.slots, len(labels)))
        alpha_LC -= [5.0 * reads_context(candidate) for candidate in self.candidates]
        path = write(folder / f"{seed}.npz", np.stack([alpha_LC] * 4), labels)
        self.cost = LayoutCost("flops", {label: float(draw.uniform(0, 5)) for label in labels}, 1.0)
        self.config = DeriveConfig(method=method, seed=seed, **FEW)
        limits = context_limit(self.candidates, self.slots, self.config.least_context)
        if seed % 2:
            most = float(draw.uniform(0.2, 1.0)) * self.slots * 5.0 + 1.0
            limits = (*limits, Limit(self.cost, most))
        self.request = Request(
            self.config, self.candidates, self.slots, self.cost, {0: path},
            score=self.score, train=self.train, limits=limits,
        )  # fmt: skip

    def score(self, layout: Layout) -> Score:
        assert reading(layout)
        return Score(self.draw.uniform(10, 20, size=2), np.array([10.0, 30.0]))

    def train(self, layouts: Sequence[Layout], length: Length, seeds: Sequence[int]) -> list[float]:
        assert all(map(reading, layouts))
        return [float(reading(one) + self.draw.uniform()) for _ in seeds for one in layouts]

    def layouts(self) -> list[Layout]:
        derived = method_of(self.config.method)(self.request)
        assert derived.layout in derived.ranked or not derived.ranked
        return [
            derived.layout,
            *derived.ranked,
            *(parse_layout(one["layout"], self.request.candidates) for one in derived.front),
        ]


def test_250_draws_of_spaces_budgets_and_methods_read_context(tmp_path: Path) -> None:
    derived = dict.fromkeys({*DERIVATIONS} - {*OF_MODEL}, 0)
    for seed in range(250):
        case = Case(seed, tmp_path)
        with suppress(ValueError):
            layouts = case.layouts()
            assert all(map(reading, layouts)), seed
            derived[case.config.method] += 1
    assert min(count for name, count in derived.items() if name != "layout") > 7, derived


def test_argmax_stays_as_it_is_where_it_reads_context_and_says_so_where_not(tmp_path: Path) -> None:
    candidates = tiny.candidates("attention", "dense")
    cost = LayoutCost("flops", {"attention": 1.0, "dense": 1.0})
    for alpha_LC, letters, words in (
        ([[1.0, 0.0], [0.0, 1.0]], ["attention", "dense"], "argmax of the mean"),
        ([[0.0, 2.0], [0.0, 1.0]], ["dense", "attention"], "argmax with 1 or more blocks that"),
    ):
        path = write(tmp_path / "pi.npz", np.array([alpha_LC]), ["attention", "dense"])
        limits = context_limit(candidates, 2, 1)
        request = Request(DeriveConfig(), candidates, 2, cost, {0: path}, limits=limits)
        derived = method_of("argmax")(request)
        assert [slot.label for slot in derived.layout] == letters
        assert derived.evidence.method.startswith(words)
