"""Which blocks of a trained model stay: in each place its own block or nothing, within a budget.

All maximal subsets are scored by KL from the parent where they can be counted, else those of a
greedy walk with scores made anew at each step, and swaps.

Differs from ShortGPT (Men et al. 2024, arXiv 2403.03853) and LLM-Drop (He et al. 2024, arXiv
2406.15786), which rank blocks one by one: subsets are scored whole, and the budget is a cost.

L places
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations

import numpy as np

from model import Evidence, layout_letters
from nas.costs.budget import LayoutCost
from nas.derivation.base import CONTEXT, Choice, Derived, Request
from nas.derivation.training import Row
from nas.statistics.paired_scores import Score

# Of more subsets than these no list is made.
_MOST_LISTED = 2**20


@dataclass(frozen=True)
class Distance:
    """How far a sub-network is from its parent, on the same text for all: KL, and its own nats."""

    kl: Score
    nats: Score

    @property
    def kl_nats(self) -> float:
        """KL(parent || sub-network) per token."""
        return self.kl.nats_per_token


@dataclass(frozen=True)
class Parent:
    """A trained model, as what may stay of it.

    Attributes:
        options: of each place the candidates that can be there, the parent's own first.
        distances: of sub-networks, many at once: those that begin alike share their beginning.
        cosines: of each place, how alike what comes in and what goes out is, over tokens.
    """

    options: Sequence[Sequence[int]]
    distances: Callable[[Sequence[Choice]], Mapping[Choice, Distance]]
    cosines: Callable[[], Sequence[float]]

    @property
    def whole(self) -> Choice:
        """The parent itself."""
        return tuple(of_place[0] for of_place in self.options)

    @property
    def without_one(self) -> dict[int, Choice]:
        """The parent with nothing in a place, for every place that has a block."""
        whole, options = self.whole, enumerate(self.options)
        return {at: (*whole[:at], of[-1], *whole[at + 1 :]) for at, of in options if of[1:]}

    def with_less(self, choice: Choice) -> Iterator[tuple[int, Choice]]:
        """The choice with the next option in a place, for every place that has one."""
        for place, of_place in enumerate(self.options):
            if (at := of_place.index(choice[place]) + 1) < len(of_place):
                yield place, (*choice[:place], of_place[at], *choice[place + 1 :])

    def with_more(self, choice: Choice) -> Iterator[tuple[int, Choice]]:
        """The choice with the parent's own block in a place, for every place that lacks it."""
        for place, of_place in enumerate(self.options):
            if choice[place] != of_place[0]:
                yield place, (*choice[:place], of_place[0], *choice[place + 1 :])


def shrink(request: Request) -> Derived:
    """The sub-network that is nearest to its parent.

    Raises:
        ValueError: there is no budget, the parent keeps it, or no subset does.
    """
    parent, config = request.parent, request.config.shrink
    assert parent is not None
    if not request.has_budget:
        raise ValueError("derive.budget: shrink drops blocks until it is kept; give one")
    if request.allowed(parent.whole):
        raise ValueError(f"{request.must_keep}: the parent itself is within it; give less")
    subsets, how = maximal_subsets(request, parent), "all {} maximal subsets"
    if subsets is None or len(subsets) > config.evaluations:
        walk = Greedy(request, parent, config.evaluations)
        subsets, how = walk.subsets(), "{} subsets of a greedy walk"
    if not subsets:
        raise ValueError(
            f"{request.must_keep}: no subset of the parent's blocks is within it; give a larger "
            "budget or more derive.shrink.evaluations"
        )
    distances = parent.distances(subsets)
    order = sorted(subsets, key=lambda one: (distances[one].kl_nats, one))
    words = f"shrink: {how.format(len(subsets))} by KL on {distances[order[0]].kl.tokens:,} tokens"
    layouts = tuple(map(request.networks.layout, order))
    return Derived(
        layout=layouts[0],
        evidence=Evidence(method=words),
        ranked=layouts,
        subsets=_rows(request, order, distances),
        prices=_prices(request, parent),
    )


def maximal_subsets(request: Request, parent: Parent) -> list[Choice] | None:
    """Those within the limits to which nothing can be given back; None: too many to list."""
    options, candidates = parent.options, request.candidates
    if math.prod(map(len, options)) > _MOST_LISTED:
        return None
    # An axis for each place, along it the place's options.
    within = np.ones([len(of_place) for of_place in options], dtype=bool)
    for limit in request.limits:
        cost = limit.cost.by_label
        places = ([cost[candidates[k].label] for k in of_place] for of_place in options)
        within &= limit.allows(limit.cost.rest + sum(np.ix_(*places)))
    maximal, costs = within.copy(), _costs(request)
    for place, of_place in enumerate(options):
        fits, left = (np.moveaxis(table, place, 0) for table in (within, maximal))
        of_option = [[cost.by_label[candidates[k].label] for cost in costs] for k in of_place]
        for more, less in permutations(range(len(of_place)), 2):
            # The own block gives back most, then what costs at least as much by all limits.
            dearer = [a - b for a, b in zip(of_option[more], of_option[less], strict=True)]
            if more == 0 or (less and min(dearer) >= 0 and (max(dearer) > 0 or more < less)):
                left[less] &= ~fits[more]
    return [
        tuple(of_place[at] for of_place, at in zip(options, row_L, strict=True))
        for row_L in np.argwhere(maximal).tolist()
    ]


@dataclass
class Greedy:
    """A walk that drops, block by block, what raises the KL least for what it saves, and swaps.

    A swap gives a block back and drops another, or as many as the limits ask for; it stays where
    the KL falls. The walk ends where none falls, or after `most` scores.
    """

    request: Request
    parent: Parent
    most: int
    kl: dict[Choice, float] = field(default_factory=dict)

    def subsets(self) -> list[Choice]:
        """All that were met within the limits."""
        self.score([self.parent.whole])
        now = self.dropped(self.parent.whole)
        while now is not None:
            found = self.score(self._swapped(now))
            nearest = min(found, key=self.distance, default=now)
            if self.distance(nearest) >= self.distance(now):
                break
            now = nearest
        return [one for one in self.kl if self.request.allowed(one)]

    def _swapped(self, now: Choice) -> list[Choice]:
        """What is within the limits after a swap."""
        given_back, found = [*self.parent.with_more(now)], list[Choice]()
        self.score([more for _, more in given_back])
        for place, more in given_back:
            less = [one for at, one in self.parent.with_less(more) if at != place]
            within = [one for one in (more, *less) if self.request.allowed(one)]
            found += within or filter(None, [self.dropped(more, place)])
        return found

    def score(self, choices: Sequence[Choice]) -> list[Choice]:
        """Score what can be scored still; those that have a score."""
        new = [one for one in choices if one not in self.kl][: self.most - len(self.kl)]
        found = self.parent.distances(new)
        self.kl |= {one: found[one].kl_nats for one in new}
        return [one for one in choices if one in self.kl]

    def distance(self, choice: Choice) -> float:
        """Its KL; infinite where it was not scored."""
        return self.kl.get(choice, math.inf)

    def dropped(self, now: Choice, keeps: int | None = None) -> Choice | None:
        """Drop until the limits are kept, in other places than `keeps`; None: they cannot be."""
        while not self.request.allowed(now):
            less = [one for place, one in self.parent.with_less(now) if place != keeps]
            if not (known := self.score(less)):
                return None
            before = now
            now = min(known, key=lambda after: (self._price(before, after), after))
        return now

    def _price(self, before: Choice, after: Choice) -> float:
        """What dropping adds to the KL, for the part of the limits that it saves."""
        larger, smaller = map(self.request.networks.layout, (before, after))
        limits = (one for one in self.request.limits if one.cost.name != CONTEXT)
        saved = sum((one.cost(larger) - one.cost(smaller)) / one.most for one in limits)
        return max(0.0, self.distance(after) - self.distance(before)) / max(saved, 1e-12)


def _rows(
    request: Request,
    order: Sequence[Choice],
    distances: Mapping[Choice, Distance],
) -> list[Row]:
    """Every subset within the limits, the nearest first; KLs are compared by parts."""
    nearest, rows = distances[order[0]], list[Row]()
    for one in order:
        above, error = distances[one].kl.less(nearest.kl)
        layout = request.networks.layout(one)
        rows.append(
            {
                "layout": layout_letters(layout),
                "kl_nats": round(distances[one].kl_nats, 6),
                "above_nearest": round(above, 6),
                "above_nearest_error": round(error, 6),
                "nats_per_token": round(distances[one].nats.nats_per_token, 6),
                **{cost.name: round(cost(layout), 6) for cost in _costs(request)},
            }
        )
    return rows


def _prices(request: Request, parent: Parent) -> list[Row]:
    """What dropping each block alone costs, and what the block itself does."""
    dropped = parent.without_one
    found = parent.distances([parent.whole, *dropped.values()])
    whole = found[parent.whole].nats.nats_per_token
    return [
        {
            "block": place,
            "label": (label := request.candidates[parent.whole[place]].label),
            "kl_nats": round(found[less].kl_nats, 6),
            "nats_more": round(found[less].nats.nats_per_token - whole, 6),
            **{cost.name: round(cost.by_label[label], 6) for cost in _costs(request)},
        }
        for place, less in dropped.items()
    ]


def _costs(request: Request) -> list[LayoutCost]:
    return [limit.cost for limit in request.limits if limit.cost.name != CONTEXT]
