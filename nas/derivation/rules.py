"""Layouts without a search: interleaved, PAR, sandwich, a random one, one written down.

Where a method trains the layouts of rules, a rule places any number of blocks.

Of attention and dense blocks, for every number of attention blocks (`attention blocks first: 2`):

first: all attention, then all dense (a sandwich without a middle, Press et al. 2020, arXiv
    1911.03864).
spread: attention spread evenly; half of the blocks, rounded up, make it `interleaved`.
early: attention spread over the first two thirds (PAR, Mandava et al. 2020, arXiv 2009.04534).
after dense, in the place of early with `model.token_shift`, by which dense blocks mix tokens too:
    one dense block, then attention spread over the rest (benchmarks/records/dense_first.md).
last: the mirror of first.

Whatever their number, `interleaved` in turn, cut to what the limits leave of it.

Of a further kind, with as many blocks as the space allows:

interleaved: in turn with dense blocks, or with attention where the kind mixes no tokens.
hybrid: the same, but each third block of it is attention; it begins with the kind (LFM2, arXiv
    2511.23404: six attentions to ten short convolutions, none of them the first).
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import product

from model import Candidate, Evidence, Layout, parse_layout
from nas.derivation.base import Derived, Request
from nas.derivation.config import DeriveConfig

# The best layout of LayoutBench, docs/layoutbench.md.
_SANDWICH_ENDS = 2


def _early(attention: int, blocks: int) -> set[int]:
    reach = max(attention, 2 * blocks // 3)
    return {number * reach // attention for number in range(attention)}


def _spread(attention: int, blocks: int) -> set[int]:
    return {-(-number * blocks // attention) for number in range(attention)}


# By rule where so many attention blocks of all blocks stand.
PLACES: Mapping[str, Callable[[int, int], set[int]]] = {
    "attention blocks first": lambda attention, blocks: set(range(attention)),
    "attention blocks spread": _spread,
    "attention blocks early": _early,
    "attention blocks after dense": lambda attention, blocks: {
        1 + place for place in _spread(attention, blocks - 1)
    },
    "attention blocks last": lambda attention, blocks: set(range(blocks - attention, blocks)),
}

_IF_SHIFTED, _IF_NOT = "attention blocks after dense", "attention blocks early"
CUT = "interleaved, cut"
# Rules of a further kind, by the first words of their names.
KIND_RULES = ("interleaved ", "hybrid ")
Named = Iterator[tuple[str, list[int]]]


def rows_of_rules(
    names: Mapping[int, str],
    mixes_tokens: Collection[int],
    attention: int | None,
    dense: int | None,
    lengths: Sequence[int],
    *,
    token_shift: bool = False,
) -> Named:
    """What rules make of kinds that have these names, as rows of kinds, in all of these lengths.

    The longest row of a name, which stands for the rule, comes last.
    """
    if attention is not None and dense is not None:
        rules = [rule for rule in PLACES if rule != (_IF_NOT if token_shift else _IF_SHIFTED)]
        for count, rule in product(range(1, max(lengths, default=0)), rules):
            for blocks in lengths:
                if count < blocks:
                    places = PLACES[rule](count, blocks)
                    row = [attention if place in places else dense for place in range(blocks)]
                    yield f"{rule}: {count}", row
        for blocks in lengths:
            if blocks > 1:
                yield CUT, [dense if place % 2 else attention for place in range(blocks)]
    for kind, name in names.items():
        if kind not in (attention, dense):
            for blocks in lengths:
                yield from _rows_of_kind(kind, name, kind in mixes_tokens, attention, dense, blocks)


def _rows_of_kind(
    kind: int, name: str, mixes_tokens: bool, attention: int | None, dense: int | None, blocks: int
) -> Named:
    places = range(blocks)
    if not mixes_tokens:
        if attention is not None:
            yield f"interleaved {name}", [kind if place % 2 else attention for place in places]
    elif dense is not None:
        yield f"interleaved {name}", [dense if place % 2 else kind for place in places]
        # Of fewer blocks a hybrid has no attention and is the interleaved one.
        if attention is not None and blocks > 4:
            row = [attention if place % 6 == 4 else kind for place in places]
            yield f"hybrid {name}", [dense if place % 2 else row[place] for place in places]


def _by_rule(request: Request, method: str, attention_slots: set[int]) -> Derived:
    attention = _first_of_kind(request.candidates, "attention", method)
    dense = _first_of_kind(request.candidates, "dense", method)
    layout = tuple(attention if slot in attention_slots else dense for slot in range(request.slots))
    return Derived(layout=layout, evidence=Evidence(method=method))


def _first_of_kind(candidates: Sequence[Candidate], kind: str, method: str) -> Candidate:
    for candidate in candidates:
        if candidate.kind == kind:
            return candidate
    labels = ", ".join(candidate.label for candidate in candidates)
    raise ValueError(f"{method}: needs a candidate of kind {kind}; model.candidates has {labels}")


def interleaved(request: Request) -> Derived:
    """Attention and dense in turn, attention first: the Transformer-XL itself (Dai et al. 2019)."""
    return _by_rule(request, "interleaved", set(range(0, request.slots, 2)))


def par(request: Request) -> Derived:
    """One attention slot per p slots, spread over the first two thirds (Mandava et al. 2020)."""
    count = max(1, round(request.slots / request.config.p))
    slots = _early(count, request.slots)
    return _by_rule(request, f"par, p = {request.config.p}", slots)


def sandwich(request: Request) -> Derived:
    """s^k (s f)^(n - k) f^k over 2n slots (Press et al. 2020, section 5).

    With an odd number of slots the middle ends with attention too, so that it costs what
    `interleaved` costs.
    """
    slots, k = request.slots, sandwich_ends(request.config, request.slots)
    if 2 * k > slots:
        raise ValueError(
            f"sandwich: derive.k {k} must be at most half of {slots} blocks; leave it out"
        )
    middle = set(range(k, slots - k, 2))
    return _by_rule(request, f"sandwich, k = {k}", set(range(k)) | middle)


def sandwich_ends(config: DeriveConfig, slots: int) -> int:
    """How many slots of a sandwich are alike at each end."""
    return min(_SANDWICH_ENDS, slots // 2) if config.k is None else config.k


def explicit(request: Request) -> Derived:
    """The layout of derive.layout, as letters or labels."""
    if request.config.layout is None:
        raise ValueError("method layout takes derive.layout; give its letters, e.g. 'a d a d i d'")
    layout = written_layout(request.config.layout, request.candidates, request.slots)
    return Derived(layout=layout, evidence=Evidence(method="layout"))


def written_layout(text: str, candidates: Sequence[Candidate], slots: int) -> Layout:
    """The layout of letters or labels; ValueError where it is none, or none of so many slots."""
    layout = parse_layout(text, candidates)
    if len(layout) != slots:
        raise ValueError(
            f"layout: {text!r} has {len(layout)} blocks, model.n_blocks is {slots}; give as many, "
            f"or --set model.n_blocks={len(layout)}"
        )
    return layout


def random_layout(request: Request) -> Derived:
    """Every slot an independent uniform draw; the first that keeps the limits."""
    drawn = request.networks.drawn(request.slots, request.config.seed)
    choice = next(filter(request.allowed, drawn), None)
    if choice is None:
        raise ValueError(f"random: no draw is within {request.must_keep}; allow more")
    evidence = Evidence(method=f"random, seed {request.config.seed}{request.budget_words}")
    return Derived(layout=request.networks.layout(choice), evidence=evidence)
