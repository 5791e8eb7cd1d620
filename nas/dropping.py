"""Rules that say which blocks of a trained model to drop: `nas.baselines.DROPS` has their names.

Some drop blocks in an order until what is left costs no more than the chosen sub-network, and give
back what finds room again; others drop the blocks whose values have the least sum. So each is
maximal, like the chosen one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import LinearConstraint, milp

from model import Layout
from nas.baselines import NoBaseline
from nas.derivation.base import Choice
from nas.derivation.shrink import Parent

_NONE = "no subset that reads earlier tokens costs as little as the chosen one"


@dataclass(frozen=True)
class Dropping:
    """A parent, and what may be left of it.

    Attributes:
        layout_of: the blocks of a sub-network.
        over_cost: by how much a layout is above the cost of the chosen one.
        over_limits: the same of the other limits, as of blocks that read no earlier tokens. Every
            block adds its own part to these, whatever the others are.
        wanted: how many different ones a rule may give.
    """

    parent: Parent
    layout_of: Callable[[Choice], Layout]
    over_cost: Callable[[Layout], float]
    over_limits: Sequence[Callable[[Layout], float]]
    wanted: int = 1

    def fits(self, choice: Choice) -> bool:
        """Whether a sub-network costs no more than the chosen one."""
        return self.over_cost(self.layout_of(choice)) <= 0.0

    def allowed(self, choice: Choice) -> bool:
        """Whether it keeps the other limits."""
        layout = self.layout_of(choice)
        return all(over(layout) <= 0.0 for over in self.over_limits)

    @property
    def places(self) -> list[int]:
        """Where a block can be dropped."""
        return [*self.parent.without_one]

    def without(self, places: Sequence[int]) -> Choice:
        """The parent with nothing in these places."""
        options = enumerate(self.parent.options)
        return tuple(of[-1] if place in places else of[0] for place, of in options)

    def by(self, first: Callable[[int], Sequence[int]]) -> Choice:
        """Drop the least number of blocks that fits, of which `first` says the places.

        A block that must stay is passed over. NoBaseline: what must stay does not fit.
        """
        for count in range(len(self.places) + 1):
            dropped = list[int]()
            for place in first(count):
                if self.allowed(self.without([*dropped, place])):
                    dropped.append(place)
            if self.fits(self.without(dropped)):
                break
        else:
            raise NoBaseline(_NONE)
        for place in reversed(dropped):
            less = [one for one in dropped if one != place]
            dropped = less if self.fits(self.without(less)) else dropped
        return self.without(dropped)

    def in_order(self, value: Callable[[int], float]) -> Choice:
        """Drop those of least value first."""
        order = sorted(self.places, key=lambda place: (value(place), place))
        return self.by(lambda count: order[:count])

    def of_least_sum(self, value: Callable[[int], float]) -> Choice:
        """Drop the blocks whose values have the least sum: a 0/1 knapsack, solved exactly."""
        places, overs = self.places, [self.over_cost, *self.over_limits]
        layouts = [self.layout_of(self.without([place])) for place in places]
        whole = [over(self.layout_of(self.parent.whole)) for over in overs]
        saved = [
            [of_all - over(layout) for layout in layouts]
            for over, of_all in zip(overs, whole, strict=True)
        ]
        found = milp(
            [value(place) for place in places],
            integrality=1,
            bounds=(0, 1),
            constraints=LinearConstraint(saved, lb=whole),
            options={"mip_rel_gap": 0.0},
        )
        if not found.success:
            raise NoBaseline(_NONE)
        return self.without([place for place, x in zip(places, found.x, strict=True) if x > 0.5])


def drop_last(dropping: Dropping) -> list[Choice]:
    """The last blocks."""
    return [dropping.in_order(lambda place: -place)]


def drop_first(dropping: Dropping) -> list[Choice]:
    """The first blocks."""
    return [dropping.in_order(float)]


def drop_spread(dropping: Dropping) -> list[Choice]:
    """Blocks at equal distances."""
    places = dropping.places
    return [
        dropping.by(
            lambda count: [places[(2 * n + 1) * len(places) // (2 * count)] for n in range(count)]
        )
    ]


def drop_cosine(dropping: Dropping) -> list[Choice]:
    """Blocks whose outputs are most like their inputs (Men et al. 2024, arXiv 2403.03853, Eq. 1).

    Differs from the paper: blocks cost different amounts, so the sum of 1 - cosine is the least.
    """
    cosines = dropping.parent.cosines()
    return [dropping.of_least_sum(lambda place: 1.0 - cosines[place])]


def drop_prices(dropping: Dropping) -> list[Choice]:
    """Blocks whose KLs, when each is dropped alone, have the least sum."""
    dropped = dropping.parent.without_one
    found = dropping.parent.distances([*dropped.values()])
    return [dropping.of_least_sum(lambda place: found[dropped[place]].kl_nats)]


def drop_random(dropping: Dropping) -> list[Choice]:
    """Blocks in random order, each time others; the draws do not depend on the derivation."""
    generator, count = np.random.default_rng(0), len(dropping.parent.options)
    drawn = (dropping.in_order(generator.permutation(count).__getitem__) for _ in range(1000))
    return [*dict.fromkeys(drawn)][: dropping.wanted]
