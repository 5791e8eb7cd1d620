"""Layouts drawn by a seed: of about one cost, or free.

A choice is the index of a candidate for each slot.
"""

import itertools
import math
from collections.abc import Callable

import numpy as np

Choice = tuple[int, ...]
_MOST_LISTED = 100_000
_TRIES = 100_000
_MEDIAN_OF, _MIXTURES = 1001, 20_000


def free_layouts(candidates: int, slots: int, count: int, seed: int) -> list[Choice]:
    """Different layouts, each as likely as any other; all of them where there are no more."""
    return _drawn(candidates, slots, count, seed, lambda choice: True)


def equal_layouts(
    target: Choice, candidates: int, count: int, seed: int, fits: Callable[[Choice], bool]
) -> list[Choice]:
    """Different layouts that fit, each as likely as any other that does.

    Where few of all layouts fit and there are too many to list, what is missing are
    rearrangements of the target, which cost exactly as much.

    Args:
        target: the layout whose cost they have.
        candidates: how many a slot chooses from.
        count: how many are wanted; there may be fewer.
        seed: of the draws.
        fits: whether a layout costs about as much.
    """
    found = _drawn(candidates, len(target), count, seed, fits)
    generator = np.random.default_rng([seed, 1])
    seen = set(found)
    for _ in range(_TRIES if candidates ** len(target) > _MOST_LISTED else 0):
        if len(found) == count:
            break
        choice = tuple(generator.permutation(target).tolist())
        if choice not in seen:
            seen.add(choice)
            found.append(choice)
    return found


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
    if math.comb(slots + candidates - 1, slots) <= _MOST_LISTED:
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
    candidates: int, slots: int, count: int, seed: int, fits: Callable[[Choice], bool]
) -> list[Choice]:
    generator = np.random.default_rng(seed)
    if candidates**slots <= _MOST_LISTED:
        every = [c for c in itertools.product(range(candidates), repeat=slots) if fits(c)]
        order = generator.permutation(len(every))[:count]
        return [every[index] for index in order.tolist()]
    found: dict[Choice, None] = {}
    for _ in range(_TRIES):
        if len(found) == count:
            break
        choice = tuple(generator.integers(candidates, size=slots).tolist())
        if choice not in found and fits(choice):
            found[choice] = None
    return list(found)
