"""Layouts drawn by a seed, each network once: of about one cost, or free.

A choice is the index of a candidate for each slot.
"""

import itertools
import math
from collections.abc import Callable, Iterator

import numpy as np

from nas.derivation.base import MOST_LISTED, Choice, Networks

_TRIES = 100_000
_MEDIAN_OF, _MIXTURES = 1001, 20_000


def free_layouts(networks: Networks, slots: int, count: int, seed: int) -> list[Choice]:
    """Layouts of different networks, drawn uniformly; of every network if there are no more."""
    return _drawn(networks, slots, count, seed, lambda choice: True)


def equal_layouts(
    target: Choice, networks: Networks, count: int, seed: int, fits: Callable[[Choice], bool]
) -> list[Choice]:
    """Layouts of different networks that fit, drawn as `free_layouts` are.

    Where few of all layouts fit and there are too many to list, what is missing are
    rearrangements of the target, the layout whose cost they have. There may be fewer than `count`.
    """
    slots = len(target)
    drawn = _drawn(networks, slots, count, seed, fits)
    if len(drawn) == count or networks.listed(slots):
        return drawn
    generator = np.random.default_rng([seed, 1])
    rearranged = (tuple(generator.permutation(target).tolist()) for _ in range(_TRIES))
    return _first(networks, itertools.chain(drawn, rearranged), count)


def median_layout(
    candidates: int, slots: int, seed: int, cost: Callable[[Choice], float]
) -> Choice:
    """Of 1001 layouts drawn freely one of median cost."""
    generator = np.random.default_rng([seed, 2])
    drawn_NL = generator.integers(candidates, size=(_MEDIAN_OF, slots))
    choices: list[Choice] = [tuple(choice) for choice in drawn_NL.tolist()]
    return sorted(choices, key=lambda choice: (cost(choice), choice))[_MEDIAN_OF // 2]


def nearest_layout(
    candidates: int, slots: int, seed: int, cost: Callable[[Choice], float], target: float
) -> Choice:
    """A layout whose cost is nearest to the target, where a candidate costs as much in any slot.

    How often each candidate stands in it is all that counts, and every way is tried; with too many
    candidates and slots for that, all mixtures of two candidates, and 20,000 drawn ones.
    """
    choices: list[Choice] = []
    if math.comb(slots + candidates - 1, slots) <= MOST_LISTED:
        choices += itertools.combinations_with_replacement(range(candidates), slots)
    else:
        pairs = itertools.combinations(range(candidates), 2)
        for (one, other), of_one in itertools.product(pairs, range(slots + 1)):
            choices.append((one,) * of_one + (other,) * (slots - of_one))
        generator = np.random.default_rng([seed, 3])
        part_NC = generator.dirichlet(np.ones(candidates), size=_MIXTURES)
        for count_C in generator.multinomial(slots, part_NC):
            choices.append(tuple(np.repeat(np.arange(candidates), count_C).tolist()))
    return min(choices, key=lambda choice: (abs(cost(choice) - target), choice))


def _drawn(
    networks: Networks, slots: int, count: int, seed: int, fits: Callable[[Choice], bool]
) -> list[Choice]:
    generator = np.random.default_rng(seed)
    if networks.listed(slots):
        every = [*filter(fits, networks.layouts(slots))]
        order = generator.permutation(len(every)).tolist()
        return _first(networks, (every[index] for index in order), count)
    candidates = len(networks.candidates)
    draws = (tuple(generator.integers(candidates, size=slots).tolist()) for _ in range(_TRIES))
    return _first(networks, filter(fits, draws), count)


def _first(networks: Networks, choices: Iterator[Choice], count: int) -> list[Choice]:
    return [*itertools.islice(networks.first_forms(choices), count)]
