"""`trained` and `predictor` on made-up nats: what they train once and again, what they answer."""

import itertools
import sys
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model import Evidence, Layout, layout_letters, parse_layout
from nas.derivation import method_of
from nas.derivation.base import Derived, Request, derived_by
from nas.derivation.config import DeriveConfig
from nas.derivation.trained import Trained
from nas.derivation.training import (
    NONE,
    Answer,
    Kinds,
    Length,
    Space,
    Training,
    Trainings,
    training_noise,
)
from tests import tiny
from tests.nas.derivation.conftest import COST, Asked, MadeUp
from training.signals import Diverged

NATS = {"aaad": 4.1, "adad": 4.0, "aadd": 3.9, "addd": 4.2}


def nats_of_finals(one: Asked) -> float:
    """Seed 2 is 0.5 worse for all, and for `aadd` so much that `adad` is better in the mean."""
    letters = layout_letters(one.layout).replace(" ", "").replace("i", "")
    more = 0.5 if one.seed == 2 else 0.0
    return NATS.get(letters, 5.0) + more + (0.4 if letters == "aadd" and more else 0.0)


def by_finals(budget: float = 13.0, **given: Any) -> tuple[Derived, list[list[Asked]]]:
    """The answer, and what was trained for it."""
    trainings = MadeUp(nats_of_finals)
    return trainings.derive("trained", budget, 4, given, top=2), trainings.asked


def test_all_rules_are_trained_in_full_once_and_the_best_again() -> None:
    derived, trained = by_finals()
    once, again = (
        {layout_letters(one.layout).replace(" ", "") for one in asked} for asked in trained
    )
    assert once >= {"aaad", "adad", "aadd", "addd"}
    assert not any(letters.rstrip("i").startswith("d") for letters in once), "dense first is out"
    assert again == {"aadd", "adad", "aaad"}
    assert not any(one.length == "half" for asked in trained for one in asked)
    assert [{one.seed for one in asked} for asked in trained] == [{1}, {2}]
    assert layout_letters(derived.layout) == "a d a d"
    assert derived.ranked[0] == derived.layout
    assert len(derived.ranked) == 3
    assert derived.evidence.method.endswith(
        "the best is a hand-written layout (attention blocks spread: 2)"
    )


def test_what_was_trained_once_is_expected_as_if_it_had_all_seeds() -> None:
    derived, _ = by_finals()
    expected = {one["layout"]: one for one in derived.trained}
    assert expected["a d a d"]["expected_nats"] == pytest.approx(4.25)
    # aadd 0.45, adad and aaad 0.25 more than with seed 1.
    assert expected["a d d d"]["expected_nats"] == pytest.approx(4.2 + 0.95 / 3, abs=1e-6)
    # What is left of the trainings with both seeds: +-0.0667, twice, and +-0.1333; two are free.
    noise = (2 * (2 * 0.2 / 3 / 2) ** 2 * 2 + 2 * (0.4 / 3 / 1) ** 2) ** 0.5 / 2**0.5
    assert expected["a d d d"]["expected_sd"] == pytest.approx(noise, abs=1e-6)
    assert expected["a d a d"]["expected_sd"] == pytest.approx(noise / 2**0.5, abs=1e-6)
    flops = [one["flops_per_token"] for one in derived.front]
    nats = [one["expected_nats"] for one in derived.front]
    assert flops == sorted(flops)
    assert nats == sorted(nats, reverse=True)
    assert nats[-1] == pytest.approx(4.25)


def test_without_a_rule_within_the_budget_it_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^trained: no hand-written layout of attention and"):
        by_finals(4.5)


def test_after_a_search_its_best_networks_are_trained_too(monkeypatch: pytest.MonkeyPatch) -> None:
    candidates = tiny.candidates("attention", "dense", "identity")
    ranked = [parse_layout(letters, candidates) for letters in ("d a d d", "d a a d", "d d a d")]
    # By its name the package gives the function.
    monkeypatch.setattr(
        sys.modules["nas.derivation.trained"],
        "top_k",
        lambda request: Derived(ranked[0], Evidence(method="top_k"), ranked=tuple(ranked)),
    )
    _, (asked, _) = by_finals(trajectories={0: Path("pi.npz")})
    trained = {one.layout for one in asked}
    assert [layout in trained for layout in ranked] == [True, True, False], "as many as derive.top"


def space(proposed: tuple[int, ...] = ()) -> Space:
    rows = tiny_rows("ad", "da", "add", "aad", "dad")
    rules = {
        "attention blocks first: 1": 0,
        "attention blocks last: 1": 1,
        "attention blocks early: 1": 2,
    }
    return Space(rows, ("attention", "dense"), np.ones(len(rows)), rules, proposed)


def tiny_rows(*layouts: str) -> Kinds:
    kinds = [["ad".index(kind) for kind in layout] for layout in layouts]
    return np.array([row + [NONE] * (3 - len(row)) for row in kinds], dtype=np.int8)


def answer(nats: dict[tuple[int, int], float], proposed: tuple[int, ...]) -> Answer:
    def train(networks: Sequence[int], length: Length, seeds: Sequence[int]) -> list[float]:
        return [nats[network, seed] for seed in seeds for network in networks]

    return Trained(again=1)(space(proposed), Trainings(train))


def test_a_proposal_that_beats_the_best_rule_leads_by_the_paired_difference() -> None:
    nats = {(0, 1): 4.3, (2, 1): 4.2, (4, 1): 4.1, (4, 2): 4.0, (2, 2): 4.16}
    found = answer(nats, proposed=(4,))
    assert (found.network, found.best_rule, found.ranked) == (4, 2, (4, 2))
    # What is left of the four is +-0.015: more than another table's noise.
    assert found.lead == (pytest.approx(0.13), pytest.approx(0.03))
    close = answer(nats | {(4, 2): 4.055}, proposed=(4,))
    assert close.lead == (pytest.approx(0.1025), pytest.approx(0.012)), "never less than that"


def test_what_is_said_of_an_answer_names_a_rule_of_any_depth() -> None:
    deep = replace(space(), layouts=(tiny.candidates("attention") * 96,) * 5)
    found = derived_by(deep, {}, Answer(4, (4,), 0, (0.1, 0.01)), "trained", {}, {})
    assert f"the best hand-written one, {'a ' * 96}(attention" in found.evidence.method


def test_what_diverged_is_the_last_and_ends_nothing() -> None:
    nats = {(0, 1): inf, (2, 1): 4.2, (4, 1): inf, (2, 2): inf}
    assert answer(nats, proposed=(4,)).network == 2
    nats = {(0, 1): 4.1, (2, 1): 4.2, (4, 1): 4.0, (4, 2): inf, (0, 2): 4.5}
    found = answer(nats, proposed=(4,))
    assert (found.network, found.lead) == (0, (0.0, 0.0))
    expected = Trained(again=1).expected(
        {Training(n, "full", seed): of for (n, seed), of in nats.items()}
    )
    assert min(expected, key=lambda n: expected[n][0]) in (0, 2)
    assert expected[4][0] == 4.5, "the worst"
    nats = {(0, 1): 4.3, (2, 1): 4.2, (4, 1): 4.1, (4, 2): 4.0, (2, 2): inf}
    assert answer(nats, proposed=(4,)).lead == (0.0, 0.0), "no number can be said"


@pytest.mark.parametrize(("method", "length"), [("trained", "full"), ("predictor", "half")])
def test_where_all_trainings_diverged_there_is_no_answer(method: str, length: str) -> None:
    asked = list[Layout]()

    def diverging(layouts: Sequence[Layout], length: Length, seeds: Sequence[int]) -> list[float]:
        asked.extend(layouts)
        return [inf] * len(layouts)

    candidates = tiny.candidates("attention", "dense", "identity")
    request = Request(DeriveConfig(method=method), candidates, 4, COST, train=diverging)
    with pytest.raises(Diverged) as diverged:
        method_of(method)(request)
    assert str(diverged.value).startswith(f"all {len(asked)} trainings of {length} length diverged")


def results_of(nats_NS: np.ndarray) -> dict[Training, float]:
    found = np.ndenumerate(nats_NS)
    return {Training(n, "full", seed): float(nats) for (n, seed), nats in found}


def test_it_is_the_deviation_of_what_networks_and_seeds_do_not_explain() -> None:
    generator = np.random.default_rng(0)
    noise_NS = generator.normal(0, 0.05, (400, 3))
    nats_NS = 4 + generator.normal(0, 1, (400, 1)) + generator.normal(0, 1, (1, 3)) + noise_NS
    found = training_noise(range(400), range(3), results_of(nats_NS), 0.01)
    assert found == pytest.approx(0.05, rel=0.05)
    assert training_noise(range(400), range(3), results_of(nats_NS), 0.2) == 0.2


def test_of_two_networks_with_two_seeds_one_difference_is_left_or_it_is_the_least() -> None:
    known = results_of(np.array([[4.0, 4.1], [4.0, 4.5]]))
    assert training_noise((0, 1), (0, 1), known, 0.0) == pytest.approx(0.2)
    nats_NS = np.array([[4.0, inf], [4.0, 4.5]])
    assert training_noise((0, 1), (0, 1), results_of(nats_NS), 0.012) == 0.012
    assert training_noise((0, 1), (0,), results_of(nats_NS), 0.012) == 0.012


def nats_of(layout: Layout) -> float:
    """Early attention is good, one or two of them, and more blocks are better."""
    labels = [slot.label for slot in layout if slot.label != "identity"]
    places = [place / len(labels) for place, label in enumerate(labels) if label == "attention"]
    return 5.0 - 0.02 * len(labels) + 0.04 * abs(len(places) - 2) + 0.05 * sum(places)


def by_predictor(budget: float = 14.0, **probes: Any) -> tuple[Derived, list[list[Asked]]]:
    """The answer, and what was trained for it; half length is 0.3 worse."""
    trainings = MadeUp(lambda one: nats_of(one.layout) + 0.3 * (one.length == "half"))
    return trainings.derive("predictor", budget, 6, {}, trainings=probes), trainings.asked


def test_the_predictor_finds_the_best_network_of_a_budget() -> None:
    derived, (*probes, finals) = by_predictor(12.5)
    every = itertools.product(tiny.candidates("attention", "dense", "identity"), repeat=6)
    within = [nats_of(layout) for layout in every if 1.0 < COST(layout) <= 12.5]
    assert len(within) > 300
    assert nats_of(derived.layout) <= sorted(within)[0] + 0.001
    assert derived.ranked[0] == derived.layout
    assert all(trial.length == "half" for batch in probes for trial in batch)
    assert sum(map(len, probes)) == 10
    assert {(trial.length, trial.seed) for trial in finals} == {("full", 1), ("full", 2)}
    assert COST(derived.layout) <= 12.5


def test_every_training_is_reported_with_what_is_expected() -> None:
    derived, batches = by_predictor()
    trials = [trial for batch in batches for trial in batch]
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
        assert half or one["foreseen_nats"] == pytest.approx(true + 0.3, abs=0.15)


def test_of_the_first_design_only_as_many_are_probed_as_may_be() -> None:
    _, (*probes, _) = by_predictor(99.0, half=3)
    assert sum(map(len, probes)) == 3
