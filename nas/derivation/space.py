"""The networks among which a method chooses: all that keep the limits, or many drawn ones."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice, product

import numpy as np

from model import Layout
from model.blocks import BLOCKS
from nas.derivation.base import Choice, Request
from nas.derivation.rules import rows_of_rules
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

    def mixes_tokens(self, k: int) -> bool:
        """Whether a candidate's block reads other tokens."""
        return BLOCKS[self.request.candidates[k].kind].mixes_tokens

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
        mixes = [k for k in self.adding if self.mixes_tokens(k)]
        names = {k: self._labels[k] for k in self.adding}
        attention, dense = self.of_kind("attention"), self.of_kind("dense")
        for _, row in rows_of_rules(names, mixes, attention, dense, self._lengths):
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
        ValueError: no network keeps them.
    """
    builder, networks = _Builder(request), request.networks
    labels = [candidate.label for candidate in request.candidates]
    wanted = [tuple(labels.index(slot.label) for slot in layout) for layout in proposed]
    some = (choice for choice in chain(wanted, builder.choices()) if networks.of(choice).order)
    unique = networks.first_forms(filter(request.allowed, some))
    choices = [*islice(unique, None if builder.listed else DRAWN)]
    if not choices:
        raise ValueError(f"no layout keeps all of {request.must_keep}; give more room")
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
    mixes = [n for n, k in enumerate(builder.adding) if builder.mixes_tokens(k)]
    return replace(space, rules=rules_of(space, attention, dense, mixes), proposed=kept)


def _row(builder: _Builder, choice: Choice) -> list[int]:
    networks = builder.request.networks
    options = [networks.options_of(k) for k in builder.adding]
    blocks = [networks.options_of(k) for k in choice]
    row = [options.index(block) for block in blocks if block is not None]
    return row + [NONE] * (len(choice) - len(row))


def rules_of(
    space: Space, attention: str, dense: str, mixes_tokens: Sequence[int] = ()
) -> dict[str, int]:
    """The networks that rules name, as "RULE COUNT" or "RULE KIND", the longest of each.

    COUNT is the number of attention blocks; `mixes_tokens` are the numbers of kinds that do.
    """
    numbers = {name: number for number, name in enumerate(space.kinds)}
    lengths = range(2, space.kind_NL.shape[1] + 1)
    a, d = numbers.get(attention), numbers.get(dense)
    rules: dict[str, int] = {}
    for name, row in rows_of_rules(dict(enumerate(space.kinds)), mixes_tokens, a, d, lengths):
        if (number := space.number_of(row)) is not None:
            rules[name] = number
    return rules
