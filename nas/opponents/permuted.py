"""The chosen layout's own blocks in another order: does it matter where, or only how many?"""

from collections.abc import Iterator
from itertools import islice

import numpy as np

from nas.derivation.base import Layout
from nas.opponents.base import TRIES, Contest, NoOpponent, Opponent


def permuted(contest: Contest) -> list[Opponent]:
    """Uniform permutations of the chosen layout, each another network.

    They cost what it costs, slot by slot. NoOpponent where every permutation is a network that
    takes part already.
    """
    layouts = list(islice(contest.new(_permutations(contest)), contest.count))
    if not layouts:
        raise NoOpponent("permuted: every permutation of the chosen layout takes part already")
    return [
        Opponent(f"permuted-{number}", layout, "a permutation of the chosen layout")
        for number, layout in enumerate(layouts)
    ]


def _permutations(contest: Contest) -> Iterator[Layout]:
    generator = np.random.default_rng(contest.request.config.seed)
    for _ in range(TRIES):
        yield tuple(contest.chosen[place] for place in generator.permutation(len(contest.chosen)))
