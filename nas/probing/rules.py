"""Rules that place attention among dense blocks, for every number of attention blocks.

attention first: all attention, then all dense (a sandwich without a middle, Press et al. 2020,
    arXiv 1911.03864).
spread: attention spread evenly; half of the blocks, rounded up, make it `interleaved`.
early: attention spread over the first two thirds (PAR, Mandava et al. 2020, arXiv 2009.04534).
dense first: the mirror of attention first.
"""

from collections.abc import Callable, Mapping

import numpy as np

from nas.probing.base import NONE, Space


def _spread(attention: int, blocks: int) -> set[int]:
    return {-(-number * blocks // attention) for number in range(attention)}


def _early(attention: int, blocks: int) -> set[int]:
    reach = max(attention, 2 * blocks // 3)
    return {number * reach // attention for number in range(attention)}


# By rule where so many attention blocks of all blocks stand.
PLACES: Mapping[str, Callable[[int, int], set[int]]] = {
    "attention first": lambda attention, blocks: set(range(attention)),
    "spread": _spread,
    "early": _early,
    "dense first": lambda attention, blocks: set(range(blocks - attention, blocks)),
}


def rules_of(space: Space, attention: str, dense: str) -> dict[str, int]:
    """The networks that rules name, as "RULE COUNT", by the number of attention blocks.

    With each number of attention blocks there are as many dense ones as the space allows.
    """
    if not {attention, dense} <= set(space.kinds):
        return {}
    a, d = space.kinds.index(attention), space.kinds.index(dense)
    of_both_N = np.isin(space.kind_NL, (a, d, NONE)).all(axis=1)
    attention_N = (space.kind_NL == a).sum(axis=1)
    dense_N = (space.kind_NL == d).sum(axis=1)
    rules: dict[str, int] = {}
    for count in np.unique(attention_N[of_both_N & (attention_N > 0) & (dense_N > 0)]):
        most = dense_N[of_both_N & (attention_N == count)].max()
        blocks = int(count + most)
        for name, places_of in PLACES.items():
            places = places_of(int(count), blocks)
            number = space.number_of([a if place in places else d for place in range(blocks)])
            if number is not None:
                rules[f"{name} {count}"] = number
    return rules
