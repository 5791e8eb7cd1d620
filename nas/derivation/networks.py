"""Layouts as rows of indices, and which of them are one network.

A choice is the index of a candidate for each slot.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from model import Candidate, Network, block_options, network_from

Choice = tuple[int, ...]
# Of more layouts than these no list is made.
MOST_LISTED = 100_000


class Networks:
    """The networks that layouts of these candidates are.

    Args:
        candidates: what a slot chooses from, every option set.
        tie_slots: `model.tie_slots`.
    """

    def __init__(self, candidates: Sequence[Candidate], tie_slots: int | None) -> None:
        self.candidates, self.tie_slots = tuple(candidates), tie_slots
        self._labels_C = [candidate.label for candidate in candidates]

    @cached_property
    def _options_C(self) -> list[str | None]:
        return [block_options(candidate) for candidate in self.candidates]

    def layout(self, choice: Choice) -> tuple[Candidate, ...]:
        """The candidates of a choice."""
        return tuple(self.candidates[k] for k in choice)

    def of(self, choice: Choice) -> Network:
        """The network of a choice."""
        return network_from(
            [self._options_C[k] for k in choice],
            [self._labels_C[k] for k in choice],
            self.tie_slots,
        )

    def first_forms(self, choices: Iterable[Choice]) -> Iterator[Choice]:
        """The choices in their order, without those whose network came before."""
        known = set[Network]()
        for choice in choices:
            network = self.of(choice)
            if network not in known:
                known.add(network)
                yield choice

    def listed(self, slots: int) -> bool:
        """Whether the layouts of so many slots are few enough to be listed."""
        return len(self.candidates) ** slots <= MOST_LISTED

    def layouts(self, slots: int) -> Iterator[Choice]:
        """Every layout of so many slots; a network comes once for each of its forms."""
        return itertools.product(range(len(self.candidates)), repeat=slots)

    def near_forms(self, choice: Choice) -> Iterator[Choice]:
        """The choice, and its network's forms in which the first idle slot stands elsewhere."""
        yield choice
        idle = next((slot for slot, k in enumerate(choice) if self._options_C[k] is None), None)
        if idle is None:
            return
        network, rest = self.of(choice), choice[:idle] + choice[idle + 1 :]
        for slot in range(len(choice)):
            form = (*rest[:slot], choice[idle], *rest[slot:])
            if form != choice and self.of(form) == network:
                yield form
