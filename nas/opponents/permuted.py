"""The chosen layout's own blocks in another order: does it matter where, or only how many?"""

from collections.abc import Iterator
from itertools import islice

import numpy as np

from model import Layout
from nas.opponents.base import TRIES, Contest, NoOpponent, Opponent, is_equal


def permuted(contest: Contest) -> list[Opponent]:
    """Uniform permutations of the chosen layout, each another network.

    They cost what it costs, slot by slot; where slots share weights, only some have as many
    parameters. NoOpponent where every permutation takes part already, or has not.
    """
    equal: Iterator[Layout] = contest.new(_permutations(contest))
    if contest.request.tie_slots is not None and contest.cost == "parameters":
        equal = (layout for layout in equal if is_equal(contest.predicted(layout)))
    layouts = list(islice(equal, contest.count))
    if not layouts:
        raise NoOpponent(
            "permuted: every permutation of the chosen layout takes part already, or has another "
            f"number of {contest.cost}"
            if contest.cost == "parameters"
            else "permuted: every permutation of the chosen layout takes part already"
        )
    words = "a permutation of the chosen layout"
    return [
        Opponent(f"permuted-{number}", layout, words, contest.predicted(layout))
        for number, layout in enumerate(layouts)
    ]


def _permutations(contest: Contest) -> Iterator[Layout]:
    generator = np.random.default_rng(contest.request.config.seed)
    for _ in range(TRIES):
        yield tuple(contest.chosen[place] for place in generator.permutation(len(contest.chosen)))
