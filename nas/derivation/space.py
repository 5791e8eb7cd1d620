"""The networks among which a method chooses: all that keep the limits, or many drawn ones."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice, product

import numpy as np

from model import Layout
from model.blocks import BLOCKS
from nas.derivation.base import Choice, Request
from nas.derivation.rules import rows_of_rules
from nas.derivation.training import NONE, Space

# Of so many networks all are taken; of more, so many are drawn, in at most so many tries.
MOST_NETWORKS, DRAWN, _TRIES = 150_000, 20_000, 200_000


def layout_space(request: Request, proposed: Iterable[Layout] = ()) -> Space:
    """The networks of a request's candidates that keep its limits, with rules and proposals.

    Proposals that do not keep them are left out.
    """
    networks, slots, tied = request.networks, request.slots, request.tie_blocks is not None
    labels, kinds = zip(*((one.label, one.kind) for one in request.candidates), strict=True)
    attention, dense = (
        kinds.index(kind) if kind in kinds else None for kind in ("attention", "dense")
    )
    options = networks.options_C
    # A candidate of each kind of block; None: one that adds nothing.
    first = {option: options.index(option) for option in options}
    idle = first.pop(None, None)
    # Dense last, where there is one: it is what others are compared with.
    adding = sorted(first.values(), key=lambda k: (k == dense, k))
    mixes = [n for n, k in enumerate(adding) if BLOCKS[kinds[k]].mixes_tokens]
    # A network of no blocks is none that anybody looks for.
    lengths = range(slots if idle is None else 1, slots + 1)

    def padded(row: Sequence[int]) -> Choice:
        return (*row, *[-1 if idle is None else idle] * (slots - len(row)))

    count = sum(len(adding) ** blocks for blocks in lengths)
    listed = networks.listed(slots) if tied else count <= MOST_NETWORKS
    some: Iterable[Choice]
    if not listed:
        names, mixing = {k: labels[k] for k in adding}, [adding[n] for n in mixes]
        of_rules = rows_of_rules(
            names, mixing, attention, dense, lengths, token_shift=request.token_shift
        )
        drawn = _drawn([*adding, *([] if idle is None else [idle])], slots, request.config.seed)
        some = chain((padded(row) for _, row in of_rules), drawn)
    elif tied:  # the place of what adds nothing counts
        some = networks.layouts(slots)
    else:
        some = (padded(row) for blocks in lengths for row in product(adding, repeat=blocks))
    wanted = [tuple(labels.index(slot.label) for slot in layout) for layout in proposed]
    allowed = (
        one for one in chain(wanted, some) if networks.of(one).order and request.allowed(one)
    )
    choices = [*islice(networks.first_forms(allowed), None if listed else DRAWN)]
    if not choices:
        raise ValueError(f"no layout is within {request.must_keep}; allow more")
    number_of = {options[k]: n for n, k in enumerate(adding)}
    kind_NL = np.full((len(choices), slots), NONE, dtype=np.int8)
    for row_L, choice in zip(kind_NL, choices, strict=True):
        blocks = [number_of[options[k]] for k in choice if options[k] is not None]
        row_L[: len(blocks)] = blocks
    layouts = tuple(networks.layout(choice) for choice in choices)
    # Proposals come first, so those that are kept have the first numbers.
    of_wanted = {networks.of(choice) for choice in wanted}
    kept = sum(networks.of(choice) in of_wanted for choice in choices[: len(of_wanted)])
    space = Space(
        kind_NL=kind_NL,
        kinds=tuple(labels[k] for k in adding),
        flops_N=np.array([request.flops_per_token(layout) for layout in layouts]),
        layouts=layouts,
        proposed=tuple(range(kept)),
    )
    a, d = (None if k is None else adding.index(k) for k in (attention, dense))
    return replace(space, rules=rules_of(space, a, d, mixes, token_shift=request.token_shift))


def _drawn(numbers: Sequence[int], slots: int, seed: int) -> Iterator[Choice]:
    """Mixtures of all kinds, and of few, of all lengths."""
    generator = np.random.default_rng([seed, 5])
    for _ in range(_TRIES):
        part = generator.dirichlet(np.ones(len(numbers)))
        yield tuple(generator.choice(numbers, size=slots, p=part).tolist())


def rules_of(
    space: Space,
    attention: int | None,
    dense: int | None,
    mixes_tokens: Sequence[int] = (),
    *,
    token_shift: bool = False,
) -> dict[str, int]:
    """The networks that rules name, as "RULE COUNT" or "RULE KIND", the longest of each.

    COUNT is the number of attention blocks; kinds are given by their numbers.
    """
    names, lengths = dict(enumerate(space.kinds)), range(2, space.kind_NL.shape[1] + 1)
    rows = rows_of_rules(names, mixes_tokens, attention, dense, lengths, token_shift=token_shift)
    found = ((name, space.number_of.get(tuple(row))) for name, row in rows)
    return {name: number for name, number in found if number is not None}
