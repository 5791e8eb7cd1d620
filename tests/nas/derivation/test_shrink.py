"""What stays of a parent: all maximal subsets, the greedy walk, and the choice after recovery."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from model import layout_letters
from nas.costs.budget import LayoutCost, Limit
from nas.derivation.base import Choice, Request, context_limit
from nas.derivation.config import DeriveConfig
from nas.derivation.shrink import Distance, Greedy, Parent, maximal_subsets, shrink
from nas.derivation.training import Length
from nas.statistics.paired_scores import Score
from tests import tiny

# Attention and the same with less memory, dense, and nothing.
CANDIDATES = (
    *tiny.candidates("attention", "dense", "identity"),
    tiny.candidates("attention")[0].model_copy(update={"label": "near", "memory": 1}),
)
FLOPS = LayoutCost("flops", {"attention": 3.0, "near": 2.5, "dense": 2.0, "identity": 0.0}, 1.0)
MEMORY = LayoutCost("cache", {"attention": 8.0, "near": 1.0, "dense": 0.0, "identity": 0.0})
OWN, LESS = {"a": (0, 3, 2), "d": (1, 2)}, {"a": (0, 2), "d": (1, 2)}


class Made:
    """A parent whose KL is made up of what is dropped, alone and together; what was asked for.

    Blocks change the residual stream the more, the more they are worth alone.
    """

    def __init__(self, letters: str, seed: int = 0, options: Mapping[str, Choice] = LESS) -> None:
        self.options = [options[letter] for letter in letters]
        generator = np.random.default_rng(seed)
        count = len(letters)
        self.alone_L = generator.uniform(0.01, 0.5, count)
        self.both_LL = np.triu(generator.uniform(0.0, 0.6, (count, count)), 1)
        self.asked = list[Choice]()
        cosines = (1 - self.alone_L).tolist()
        self.parent = Parent(self.options, self.distances, lambda: cosines)

    def kl(self, choice: Choice) -> float:
        missing_L = np.array([
            of.index(k) / (len(of) - 1) for of, k in zip(self.options, choice, strict=True)
        ])  # fmt: skip
        return float(missing_L @ self.alone_L + missing_L @ self.both_LL @ missing_L)

    def distances(self, choices: Sequence[Choice]) -> dict[Choice, Distance]:
        self.asked += choices
        return {one: Distance(made_score(self.kl(one)), made_score(3 + self.kl(one)))
                for one in choices}  # fmt: skip

    def all(self) -> list[Choice]:
        return [*itertools.product(*self.options)]


def made_score(mean: float) -> Score:
    return Score(np.array([mean - 0.1, mean + 0.1]) * 8, np.array([8.0, 8.0]))


def request_of(made: Made, *limits: Limit, **config: Any) -> Request:
    def train(layouts: Any, length: Length, seeds: Sequence[int]) -> list[float]:
        assert (length, len(seeds)) == ("half", 1)
        # The one that was scored last recovers best.
        return [5.0 - place for place, _ in enumerate(layouts)]

    return Request(
        DeriveConfig.model_validate({"method": "shrink", "shrink": config}), CANDIDATES,
        len(made.options), FLOPS, limits=limits, train=train, parent=made.parent,
    )  # fmt: skip


@pytest.mark.parametrize("options", [LESS, OWN])
def test_maximal_subsets_are_those_of_brute_force(options: Mapping[str, Choice]) -> None:
    made = Made("adadad", options=options)
    limits = (Limit(FLOPS, 10.0), Limit(MEMORY, 17.0), *context_limit(CANDIDATES, 6, 1))
    request = request_of(made, *limits)
    wanted = []
    for choice in filter(request.allowed, made.all()):
        more = [
            (*choice[:place], k, *choice[place + 1 :])
            for place, of_place in enumerate(made.options)
            for k in of_place[: of_place.index(choice[place])]
        ]
        if not any(map(request.allowed, more)):
            wanted.append(choice)
    found = maximal_subsets(request, made.parent)
    assert found is not None
    assert len(wanted) > 5
    assert sorted(found) == sorted(wanted)


def test_a_parent_of_more_places_than_can_be_listed_is_walked() -> None:
    made = Made("ad" * 11)
    assert maximal_subsets(request_of(made, Limit(FLOPS, 30.0)), made.parent) is None


def test_the_greedy_walk_finds_the_best_more_often_than_single_prices_do() -> None:
    """Of 12 parents; without swaps it is never better."""
    best_of = {"walk": 0, "single": 0}
    for seed in range(12):
        made = Made("adadadad", seed)
        request = request_of(made, Limit(FLOPS, 12.0))
        allowed = [*filter(request.allowed, made.all())]
        best = min(map(made.kl, allowed))
        walk = Greedy(request, made.parent, 500)
        subsets = walk.subsets()
        assert all(map(request.allowed, subsets))
        assert len(made.asked) == len(set(made.asked)) == len(walk.kl) < len(allowed)
        alone = Greedy(request, made.parent, 500)
        alone.score([made.parent.whole])
        dropped = alone.dropped(made.parent.whole)
        assert dropped is not None
        found = min(map(made.kl, subsets))
        assert best <= found <= made.kl(dropped)
        dropped_NL = [np.array([k == 2 for k in one]) @ made.alone_L for one in allowed]
        best_of["walk"] += found == best
        best_of["single"] += made.kl(allowed[int(np.argmin(dropped_NL))]) == best
    assert best_of == {"walk": 9, "single": 3}


def test_the_walk_ends_with_its_scores() -> None:
    made = Made("adadadad")
    walk = Greedy(request_of(made, Limit(FLOPS, 12.0)), made.parent, 40)
    assert walk.subsets()
    assert len(walk.kl) == 40
    assert not Greedy(request_of(made, Limit(FLOPS, 12.0)), made.parent, 10).subsets()


def test_the_finalist_that_recovers_best_is_chosen() -> None:
    made = Made("adadad")
    request = request_of(made, Limit(FLOPS, 10.0), best=3)
    derived = shrink(request)
    subsets = maximal_subsets(request, made.parent)
    assert subsets is not None
    nearest = sorted(subsets, key=made.kl)
    letters = [layout_letters(request.networks.layout(one)) for one in nearest]
    assert [row["layout"] for row in derived.subsets] == [*reversed(letters[:3]), *letters[3:]]
    assert derived.layout == derived.ranked[0] == request.networks.layout(nearest[2])
    assert [row["recovered_nats"] for row in derived.subsets[:3]] == [3.0, 4.0, 5.0]
    row = derived.subsets[2]
    assert row["kl_nats"] == pytest.approx(made.kl(nearest[0]), abs=1e-6)
    assert row["above_nearest"] == 0
    assert row["flops"] == FLOPS(request.networks.layout(nearest[0]))
    whole = made.parent.whole
    for place, price in enumerate(derived.prices):
        less = made.kl((*whole[:place], 2, *whole[place + 1 :]))
        assert (price["block"], price["flops"]) == (place, 2.0 if place % 2 else 3.0)
        assert price["kl_nats"] == pytest.approx(less, abs=1e-6)
        assert price["nats_more"] == pytest.approx(less, abs=1e-6)
    assert derived.evidence.method == (
        f"shrink: all {len(subsets)} maximal subsets by KL on 16 tokens, the best of 3 that were "
        "recovered for a while"
    )
    one = shrink(request_of(made, Limit(FLOPS, 10.0), best=1))
    assert one.layout == request.networks.layout(nearest[0])
    assert "recovered" not in one.evidence.method
    walked = shrink(request_of(Made("adadadad", 1), Limit(FLOPS, 12.0), evaluations=55))
    assert walked.evidence.method.startswith("shrink: 4 subsets of a greedy walk by KL")


@pytest.mark.parametrize(
    ("limits", "config", "words"),
    [
        ((), {}, "derive.budget: shrink drops blocks until it is kept; give one"),
        ((Limit(FLOPS, 16.0),), {}, r"derive.budget \(flops\): the parent itself is within it"),
        ((Limit(FLOPS, 10.0),), {"best": 99}, "best: 99, but 1[0-9] subsets of the"),
        ((Limit(FLOPS, 0.5),), {"best": 1}, "best: 1, but 0 subsets .* or more derive"),
    ],
)  # fmt: skip
def test_what_cannot_be_shrunk_is_refused(
    limits: tuple[Limit, ...], config: dict[str, int], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        shrink(request_of(Made("adadad"), *limits, **config))
