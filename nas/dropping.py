"""Rules that say which blocks of a trained model to drop: `nas.baselines.DROPS` has their names.

Each drops blocks until what is left costs no more than the chosen sub-network, and gives back what
finds room again, so that it is maximal too.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from nas.baselines import NoBaseline
from nas.derivation.base import Choice
from nas.derivation.shrink import Parent


@dataclass(frozen=True)
class Dropping:
    """A parent, and what may be left of it.

    Attributes:
        fits: whether a sub-network costs no more than the chosen one.
        allowed: whether it keeps the other limits, as of blocks that read earlier tokens.
        wanted: how many different ones a rule may give.
    """

    parent: Parent
    fits: Callable[[Choice], bool]
    allowed: Callable[[Choice], bool]
    wanted: int = 1

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
            raise NoBaseline(
                "no subset that reads earlier tokens costs as little as the chosen one"
            )
        for place in reversed(dropped):
            less = [one for one in dropped if one != place]
            dropped = less if self.fits(self.without(less)) else dropped
        return self.without(dropped)

    def in_order(self, value: Callable[[int], float]) -> Choice:
        """Drop those of least value first."""
        order = sorted(self.places, key=lambda place: (value(place), place))
        return self.by(lambda count: order[:count])


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
    """Blocks whose output is most like their input (Men et al. 2024, arXiv 2403.03853, Eq. 1)."""
    cosines = dropping.parent.cosines()
    return [dropping.in_order(lambda place: -cosines[place])]


def drop_prices(dropping: Dropping) -> list[Choice]:
    """Blocks that raise the KL least when each is dropped alone."""
    dropped = dropping.parent.without_one
    found = dropping.parent.distances([*dropped.values()])
    return [dropping.in_order(lambda place: found[dropped[place]].kl_nats)]


def drop_random(dropping: Dropping) -> list[Choice]:
    """Blocks in random order, each time others; the draws do not depend on the derivation."""
    generator, count = np.random.default_rng(0), len(dropping.parent.options)
    drawn = (dropping.in_order(generator.permutation(count).__getitem__) for _ in range(1000))
    return [*dict.fromkeys(drawn)][: dropping.wanted]
