"""The method `predictor` on made-up nats: what it asks for, what it says, when it refuses."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from model import Layout, layout_letters
from nas.costs.budget import LayoutCost, Limit
from nas.derivation import method_of
from nas.derivation.base import Derived, Request
from nas.derivation.config import DeriveConfig
from nas.derivation.training import Length
from tests import tiny
from tests.nas.derivation.conftest import Asked

COST = LayoutCost("flops", {"attention": 3.0, "dense": 2.0, "identity": 0.0}, 1.0)


def nats_of(layout: Layout) -> float:
    """Early attention is good, one or two of them, and more blocks are better."""
    labels = [slot.label for slot in layout if slot.label != "identity"]
    places = [place / len(labels) for place, label in enumerate(labels) if label == "attention"]
    return 5.0 - 0.02 * len(labels) + 0.04 * abs(len(places) - 2) + 0.05 * sum(places)


@dataclass
class Training:
    """Trainings of exactly those nats; half length is 0.3 worse."""

    asked: list[list[Asked]] = field(default_factory=list)

    def __call__(
        self, layouts: Sequence[Layout], length: Length, seeds: Sequence[int]
    ) -> list[float]:
        self.asked.append([Asked(layout, length, seed) for seed in seeds for layout in layouts])
        return [nats_of(one.layout) + 0.3 * (one.length == "half") for one in self.asked[-1]]

    def derive(
        self,
        budget: float | None = 14.0,
        slots: int = 6,
        method: str = "predictor",
        **probes: Any,
    ) -> Derived:
        """The answer within so many FLOPs."""
        config = DeriveConfig.model_validate({"method": method, "probes": probes})
        candidates = tiny.candidates("attention", "dense", "identity")
        limits = () if budget is None else (Limit(COST, budget),)
        request = Request(config, candidates, slots, COST, limits=limits, train=self)
        return method_of(method)(request)


def test_it_finds_the_best_network_of_a_budget() -> None:
    training = Training()
    derived = training.derive(12.5)
    *probes, finals = training.asked
    every = itertools.product(tiny.candidates("attention", "dense", "identity"), repeat=6)
    within = [nats_of(layout) for layout in every if 1.0 < COST(layout) <= 12.5]
    assert len(within) > 300
    assert nats_of(derived.layout) <= sorted(within)[0] + 0.001
    assert derived.ranked[0] == derived.layout
    assert all(trial.length == "half" for batch in probes for trial in batch)
    assert sum(map(len, probes)) == 10
    assert not any(trial.length == "half" for trial in finals)
    assert {trial.seed for trial in finals} == {1, 2}
    assert COST(derived.layout) <= 12.5


def test_every_training_is_reported_with_what_is_expected() -> None:
    training = Training()
    derived = training.derive()
    trials = [trial for batch in training.asked for trial in batch]
    made = [(one["layout"], one["length"], one["seed"]) for one in derived.trained]
    assert made == [(layout_letters(one.layout), one.length, one.seed) for one in trials]
    for trial, one in zip(trials, derived.trained, strict=True):
        true, half = nats_of(trial.layout), trial.length == "half"
        assert one["valid_nats"] == true + 0.3 * half
        assert one["expected_nats"] == pytest.approx(true, abs=0.06)
        assert one["expected_sd"] > 0
        assert one["flops_per_token"] == COST(trial.layout)
        # The probes alone know half length, of whose 0.3 nats more they know nothing.
        assert (one["foreseen_nats"] == "") == half
        if not half:
            assert one["foreseen_nats"] == pytest.approx(true + 0.3, abs=0.15)
    assert {one["rule"] for one in derived.trained} >= {"attention first 1", ""}
    words = derived.evidence.method
    assert words.startswith("predictor: best of ")
    assert "networks by 10 trainings of half and" in words


def test_of_the_first_design_only_as_many_are_probed_as_may_be() -> None:
    training = Training()
    training.derive(None, most=3)
    assert sum(trial.length == "half" for asked in training.asked for trial in asked) == 3
