"""What an opponent is given and what it answers."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from model import Layout, Network, network_of
from nas.derivation.base import Request
from nas.derivation.rules import interleaved

# A layout counts as equal where its cost lies so near to the chosen one's.
TOLERANCE = 0.03
TRIES = 20_000


class NoOpponent(ValueError):
    """There is no such opponent of this cost; the words say why."""


@dataclass(frozen=True)
class Opponent:
    """A layout with the name of its architecture and how it came about.

    `share` is its cost as a multiple of the chosen layout's.
    """

    name: str
    layout: Layout
    words: str
    share: float


@dataclass(frozen=True)
class Contest:
    """A chosen layout and what opponents may ask of others.

    Attributes:
        request: candidates, slots and which layouts are one network.
        chosen: the layout whose cost opponents have.
        taken: networks that take part already, the chosen one among them.
        count: how many of a kind are wanted.
        cost: the name of the cost that is equal.
        predicted: a layout's cost as a multiple of the chosen one's, counted or by the table.
        measured: those of whole layouts: counted, or timed in turn with the chosen one.
    """

    request: Request
    chosen: Layout
    taken: frozenset[Network]
    count: int
    cost: str
    predicted: Callable[[Layout], float]
    measured: Callable[[Sequence[Layout]], list[float]]

    def network(self, layout: Layout) -> Network:
        """The network of a layout."""
        return network_of(layout, self.request.tie_slots)

    def new(self, layouts: Iterable[Layout]) -> Iterator[Layout]:
        """The layouts in their order, each network once and none that is taken."""
        known = set(self.taken)
        for layout in layouts:
            network = self.network(layout)
            if network not in known:
                known.add(network)
                yield layout

    def interleaved(self) -> Layout:
        """The layout of that rule; NoOpponent where a kind is no candidate."""
        try:
            return interleaved(self.request).layout
        except ValueError as error:
            raise NoOpponent(str(error)) from None


def is_equal(share: float) -> bool:
    """Whether a cost is that of the chosen layout, but for the tolerance."""
    return abs(share - 1.0) <= TOLERANCE
