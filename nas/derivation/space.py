"""The networks among which a method chooses: all that keep the limits, or many drawn ones."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice, product

import numpy as np

from model import Layout
from model.blocks import BLOCKS
from nas.derivation.base import Choice, NoLayout, Request
from nas.derivation.rules import PLACES, kind_rows
from nas.derivation.training import NONE, Space

# Of so many networks all are taken; of more, so many are drawn, in at most so many tries.
MOST_NETWORKS, DRAWN, _TRIES = 150_000, 20_000, 200_000


@dataclass(frozen=True)
class _Builder:
    request: Request

    @cached_property
    def adding(self) -> list[int]:
        """Candidates that add something, one of each kind of block."""
        options = [self.request.networks.options_of(k) for k in range(len(self._labels))]
        first = {option: k for k, option in reversed([*enumerate(options)]) if option is not None}
        # Dense last, where there is one: it is what others are compared with.
        return sorted(first.values(), key=lambda k: (k == self.of_kind("dense"), k))

    @cached_property
    def idle(self) -> int | None:
        """A candidate that adds nothing."""
        numbers = range(len(self._labels))
        idle = (k for k in numbers if self.request.networks.options_of(k) is None)
        return next(idle, None)

    @property
    def _labels(self) -> list[str]:
        return [candidate.label for candidate in self.request.candidates]

    def of_kind(self, kind: str) -> int | None:
        """The first candidate of a kind."""
        candidates = enumerate(self.request.candidates)
        return next((k for k, candidate in candidates if candidate.kind == kind), None)

    @cached_property
    def listed(self) -> bool:
        """Whether all networks are listed."""
        if self.request.tie_slots is not None:
            return self.request.networks.listed(self.request.slots)
        return sum(len(self.adding) ** blocks for blocks in self._lengths) <= MOST_NETWORKS

    @property
    def _lengths(self) -> range:
        # A network of no blocks is none that anybody looks for.
        return range(self.request.slots if self.idle is None else 1, self.request.slots + 1)

    def choices(self) -> Iterator[Choice]:
        """Layouts in which every network comes, or drawn ones; some come more than once."""
        if not self.listed:
            return chain(self._rules(), self._drawn())
        if self.request.tie_slots is not None:  # the place of what adds nothing counts
            return self.request.networks.layouts(self.request.slots)
        rows = (product(self.adding, repeat=blocks) for blocks in self._lengths)
        return map(self._padded, chain.from_iterable(rows))

    def _padded(self, row: Sequence[int]) -> Choice:
        rest = self.request.slots - len(row)
        assert not rest or self.idle is not None
        return (*row, *[self.idle or 0] * rest)

    def _rules(self) -> Iterator[Choice]:
        attention, dense = self.of_kind("attention"), self.of_kind("dense")
        others = (k for k in self.adding if k not in (attention, dense))
        for k, blocks in product(others, self._lengths):
            mixes = BLOCKS[self.request.candidates[k].kind].mixes_tokens
            for _, row in kind_rows(k, mixes, attention, dense, blocks):
                yield self._padded(row)
        if attention is None or dense is None:
            return
        for blocks, places_of in product(self._lengths, PLACES.values()):
            for count in range(1, blocks):
                places = places_of(count, blocks)
                row = [attention if place in places else dense for place in range(blocks)]
                yield self._padded(row)

    def _drawn(self) -> Iterator[Choice]:
        """Mixtures of all kinds, and of few, of all lengths."""
        generator = np.random.default_rng([self.request.config.seed, 5])
        numbers = [*self.adding, *([] if self.idle is None else [self.idle])]
        for _ in range(_TRIES):
            part = generator.dirichlet(np.ones(len(numbers)))
            yield tuple(generator.choice(numbers, size=self.request.slots, p=part).tolist())


def layout_space(request: Request, proposed: Iterable[Layout] = ()) -> Space:
    """The networks of a request's candidates that keep its limits, with rules and proposals.

    Proposals that do not keep them are left out.

    Raises:
        NoLayout: no network keeps them.
    """
    builder, networks = _Builder(request), request.networks
    labels = [candidate.label for candidate in request.candidates]
    wanted = [tuple(labels.index(slot.label) for slot in layout) for layout in proposed]
    some = (choice for choice in chain(wanted, builder.choices()) if networks.of(choice).order)
    unique = networks.first_forms(filter(request.allowed, some))
    choices = [*islice(unique, None if builder.listed else DRAWN)]
    if not choices:
        raise NoLayout(f"no layout keeps all of {request.must_keep}; give more room")
    layouts = tuple(networks.layout(choice) for choice in choices)
    space = Space(
        kind_NL=np.array([_row(builder, choice) for choice in choices], dtype=np.int8),
        kinds=tuple(labels[k] for k in builder.adding),
        flops_N=np.array([request.flops_per_token(layout) for layout in layouts]),
        layouts=layouts,
    )
    # Proposals come first, so those that are kept have the first numbers.
    of_wanted = {networks.of(choice) for choice in wanted}
    ahead = (n for n, choice in enumerate(choices) if networks.of(choice) in of_wanted)
    kept = tuple(islice(ahead, len(of_wanted)))
    named = [builder.of_kind(kind) for kind in ("attention", "dense")]
    attention, dense = ("" if k is None else labels[k] for k in named)
    kinds = {labels[k]: request.candidates[k].kind for k in builder.adding}
    mixes_tokens = {label: BLOCKS[kind].mixes_tokens for label, kind in kinds.items()}
    rules = rules_of(space, attention, dense)
    rules |= rules_of_kinds(space, attention, dense, mixes_tokens)
    return replace(space, rules=rules, proposed=kept)


def _row(builder: _Builder, choice: Choice) -> list[int]:
    networks = builder.request.networks
    options = [networks.options_of(k) for k in builder.adding]
    blocks = [networks.options_of(k) for k in choice]
    row = [options.index(block) for block in blocks if block is not None]
    return row + [NONE] * (len(choice) - len(row))


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
