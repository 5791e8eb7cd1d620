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
from nas.derivation.predictor import PROBE_SEED
from nas.derivation.shrink import Distance, Greedy, Parent, maximal_subsets, shrink
from nas.derivation.training import Length
from nas.statistics.paired_scores import Score
from tests import tiny

# Attention and the same with less memory, dense, and nothing.
CANDIDATES = (
    *tiny.candidates("attention", "dense", "identity"),
    tiny.candidates("attention")[0].model_copy(update={"label": "near", "memory": 1}),
    tiny.candidates("attention")[0].model_copy(update={"label": "mid", "memory": 2}),
)
FLOPS = LayoutCost(
    "flops", {"attention": 3.0, "near": 2.5, "mid": 2.75, "dense": 2.0, "identity": 0.0}, 1.0
)
MEMORY = LayoutCost(
    "cache", {"attention": 8.0, "near": 1.0, "mid": 2.0, "dense": 0.0, "identity": 0.0}
)
OWN, LESS = {"a": (0, 3, 2), "d": (1, 2)}, {"a": (0, 2), "d": (1, 2)}
# The cheaper one first: what is listed first is not what costs more.
BOTH = {"a": (0, 3, 4, 2), "d": (1, 2)}


class Made:
    """A parent whose KL is made up of what is dropped, alone and together; what was asked for.

    Blocks change the residual stream the more, the more they are worth alone. Nats fall where KL
    rises, so that none is taken for the other.
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
            of.index(k) / max(1, len(of) - 1) for of, k in zip(self.options, choice, strict=True)
        ])  # fmt: skip
        return float(missing_L @ self.alone_L + missing_L @ self.both_LL @ missing_L)

    def distances(self, choices: Sequence[Choice]) -> dict[Choice, Distance]:
        self.asked += choices
        return {one: Distance(made_score(self.kl(one)), made_score(3 - self.kl(one)))
                for one in choices}  # fmt: skip

    def all(self) -> list[Choice]:
        return [*itertools.product(*self.options)]


def made_score(mean: float) -> Score:
    return Score(np.array([mean - 0.1, mean + 0.1]) * 8, np.array([8.0, 8.0]))


def request_of(made: Made, *limits: Limit, **config: Any) -> Request:
    def train(layouts: Any, length: Length, seeds: Sequence[int]) -> list[float]:
        assert (length, *seeds) == ("half", PROBE_SEED)
        # The one that was scored last recovers best.
        return [5.0 - place for place, _ in enumerate(layouts)]

    return Request(
        DeriveConfig.model_validate({"method": "shrink", "shrink": config}), CANDIDATES,
        len(made.options), FLOPS, limits=limits, train=train, parent=made.parent,
    )  # fmt: skip


def test_a_place_loses_one_option_at_a_time_and_gets_its_own_block_back() -> None:
    parent = Made("ad", options=OWN).parent
    assert [*parent.with_less((0, 1))] == [(0, (3, 1)), (1, (0, 2))]
    assert [*parent.with_less((3, 2))] == [(0, (2, 2))]
    found = [[*parent.with_more(choice)] for choice in ((3, 2), (0, 1))]
    assert found == [[(0, (0, 2)), (1, (3, 1))], []]


# At 9.0 a subset has room for the dense blocks that it keeps, but not for what it lacks.
@pytest.mark.parametrize("most", [10.0, 9.0])
@pytest.mark.parametrize("options", [LESS, OWN, BOTH])
def test_maximal_subsets_are_those_of_brute_force(
    options: Mapping[str, Choice], most: float
) -> None:
    made = Made("adadad", options=options)
    limits = (Limit(FLOPS, most), Limit(MEMORY, 17.0), *context_limit(CANDIDATES, 6, 1))
    request = request_of(made, *limits)
    wanted = []
    for choice in filter(request.allowed, made.all()):
        more = [
            (*choice[:place], k, *choice[place + 1 :])
            for place, of_place in enumerate(made.options)
            for k in of_place
            if FLOPS.by_label[CANDIDATES[k].label] > FLOPS.by_label[CANDIDATES[choice[place]].label]
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


def test_a_swap_drops_as_many_blocks_as_the_limits_ask_for() -> None:
    """The attention alone is nearer than both dense blocks, each of which is dearer than it."""
    made = Made("add")
    made.alone_L, made.both_LL = np.array([0.3, 0.25, 0.25]), np.zeros((3, 3))
    made.both_LL[1, 2] = -0.22
    walk = Greedy(request_of(made, Limit(FLOPS, 5.0)), made.parent, 100)
    walk.score([made.parent.whole])
    assert walk.dropped(made.parent.whole) == (2, 1, 1)
    assert min(walk.subsets(), key=made.kl) == (0, 2, 2)


def test_what_a_drop_saves_is_its_part_of_each_cost_whatever_its_unit() -> None:
    """Blocks that read earlier tokens are asked for, but are no cost."""
    made = Made("aad")
    made.alone_L, made.both_LL = np.array([0.22, 0.5, 0.19]), np.zeros((3, 3))
    weights = {"attention": 1000.0, "near": 1000.0, "dense": 1500.0, "identity": 0.0}
    limits = (Limit(FLOPS, 7.0), Limit(LayoutCost("parameters", weights), 10_000.0))
    request = request_of(made, *limits, *context_limit(CANDIDATES, 3, 1))
    # 0.22 / (3 / 7 + 0.1) is less than 0.19 / (2 / 7 + 0.15).
    walk = Greedy(request, made.parent, 100)
    walk.score([made.parent.whole])
    assert walk.dropped(made.parent.whole) == (2, 0, 1)


def test_the_walk_ends_with_its_scores() -> None:
    made = Made("adadadad")
    walk = Greedy(request_of(made, Limit(FLOPS, 12.0)), made.parent, 40)
    assert walk.subsets()
    assert len(walk.kl) == 40
    assert not Greedy(request_of(made, Limit(FLOPS, 12.0)), made.parent, 10).subsets()


def test_the_nearest_subset_is_chosen() -> None:
    made = Made("adadad", options=OWN)
    request = request_of(made, Limit(FLOPS, 10.0))
    derived = shrink(request)
    subsets = maximal_subsets(request, made.parent)
    assert subsets is not None
    nearest = sorted(subsets, key=made.kl)
    letters = [layout_letters(request.networks.layout(one)) for one in nearest]
    assert [row["layout"] for row in derived.subsets] == letters
    assert derived.layout == derived.ranked[0] == request.networks.layout(nearest[0])
    kl_of = dict(zip(letters, map(made.kl, nearest), strict=True))
    for row in derived.subsets:
        kl = kl_of[row["layout"]]
        assert row["kl_nats"] == pytest.approx(kl, abs=1e-6)
        assert row["above_nearest"] == pytest.approx(kl - made.kl(nearest[0]), abs=1e-6)
        assert row["nats_per_token"] == pytest.approx(3 - kl, abs=1e-6)
    assert derived.subsets[0]["flops"] == FLOPS(request.networks.layout(nearest[0]))
    for place, (price, less) in enumerate(zip(derived.prices, made.alone_L, strict=True)):
        assert (price["block"], price["flops"]) == (place, 2.0 if place % 2 else 3.0)
        assert price["kl_nats"] == pytest.approx(less, abs=1e-6)
        assert price["nats_more"] == pytest.approx(-less, abs=1e-6)
    said = f"shrink: all {len(subsets)} maximal subsets by KL on 16 tokens"
    assert derived.evidence.method == said
    counted = request_of(made, Limit(FLOPS, 10.0), evaluations=len(subsets))
    assert shrink(counted).evidence.method.startswith(f"shrink: all {len(subsets)} maximal")
    walked = shrink(request_of(Made("adadadad", 1), Limit(FLOPS, 12.0), evaluations=55))
    assert walked.evidence.method.startswith("shrink: 4 subsets of a greedy walk by KL")


@pytest.mark.parametrize(
    ("limits", "config", "words"),
    [
        ((), {}, "derive.budget: shrink drops blocks until it is kept; give one"),
        ((Limit(FLOPS, 16.0),), {}, r"derive.budget \(flops\): the parent itself is within it"),
        ((Limit(FLOPS, 0.5),), {}, "no subset of the parent's blocks is within it; give a larger"),
    ],
)  # fmt: skip
def test_what_cannot_be_shrunk_is_refused(
    limits: tuple[Limit, ...], config: dict[str, int], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        shrink(request_of(Made("adadad"), *limits, **config))
