"""Rules that name networks.

Of attention and dense blocks, for every number of attention blocks:

attention first: all attention, then all dense (a sandwich without a middle, Press et al. 2020,
    arXiv 1911.03864).
spread: attention spread evenly; half of the blocks, rounded up, make it `interleaved`.
early: attention spread over the first two thirds (PAR, Mandava et al. 2020, arXiv 2009.04534).
dense first: the mirror of attention first.

Of a further kind, with as many blocks as the space allows:

interleaved: in turn with dense blocks, or with attention where the kind mixes no tokens.
hybrid: the same, but each third block of it is attention; it begins with the kind (LFM2, arXiv
    2511.23404: six attentions to ten short convolutions, none of them the first).
"""

from collections.abc import Callable, Iterator, Mapping

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

# Rules of a further kind, by the first words of their names.
KIND_RULES = ("interleaved ", "hybrid ")


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


def kind_rows(
    kind: int, mixes_tokens: bool, attention: int | None, dense: int | None, blocks: int
) -> Iterator[tuple[str, list[int]]]:
    """What the rules of a further kind make of so many blocks, by the rules' names."""
    places = range(blocks)
    if not mixes_tokens:
        if attention is not None:
            yield "interleaved", [kind if place % 2 else attention for place in places]
    elif dense is not None:
        yield "interleaved", [dense if place % 2 else kind for place in places]
        if attention is not None:
            third = {place for place in places if place % 6 == 4}
            yield (
                "hybrid",
                [attention if place in third else dense if place % 2 else kind for place in places],
            )


def rules_of_kinds(
    space: Space, attention: str, dense: str, mixes_tokens: Mapping[str, bool]
) -> dict[str, int]:
    """The networks that rules of further kinds name, as "RULE KIND", the longest of each."""
    numbers = {name: number for number, name in enumerate(space.kinds)}
    a, d = numbers.get(attention), numbers.get(dense)
    rules: dict[str, int] = {}
    for name, kind in numbers.items():
        if kind in (a, d):
            continue
        for blocks in range(2, space.kind_NL.shape[1] + 1):
            for rule, row in kind_rows(kind, mixes_tokens[name], a, d, blocks):
                number = space.number_of(row)
                # Of fewer blocks a hybrid has no attention and is the interleaved one.
                if number is not None and (rule != "hybrid" or a in row):
                    rules[f"{rule} {name}"] = number
    return rules
