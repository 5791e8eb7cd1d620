"""Opponents of a chosen layout that cost what it costs; the rules stand in nas/derivation."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from model import Candidate, Layout, Network, network_of
from model.blocks.dense import DenseOptions
from nas.derivation.base import Request
from nas.derivation.rules import interleaved, sandwich

# A layout counts as equal where its cost lies so near to the chosen one's.
TOLERANCE = 0.03
TRIES = 20_000
# So many more than are wanted are measured at once, because a prediction errs.
_MORE = 4
# Predictions err, so somewhat dearer ones are measured too.
_MEASURED = 1.15
# Costs are linear in the width, so widths around the line's are measured.
_AROUND = (1.1, 1.05, 1.0, 0.95, 0.9)
_PROBE = 0.5
# Widths are multiples of this: matrix products are no faster for what lies between.
GRAIN = 8


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


def random_equal(contest: Contest) -> list[Opponent]:
    """Uniform draws, each another network, that cost as much when they are predicted and measured.

    Li and Talwalkar (2019, arXiv 1902.07638): a search that does not beat random layouts of its
    cost found nothing. The draw of seed k depends on k alone. There may be fewer than are wanted;
    NoOpponent where there is none.
    """
    opponents = list[Opponent]()
    limits = [limit.holds for limit in contest.request.limits]
    likely = (
        layout
        for layout in contest.new(_draws(contest))
        if is_equal(contest.predicted(layout)) and all(fits(layout) for fits in limits)
    )
    while len(opponents) < contest.count:
        batch = list(islice(likely, contest.count - len(opponents) + _MORE))
        if not batch:
            break
        for layout, share in zip(batch, contest.measured(batch), strict=True):
            if is_equal(share) and len(opponents) < contest.count:
                words = f"random, {contest.cost} {share:.3f}x of the chosen layout's"
                opponents.append(Opponent(f"random-{len(opponents)}", layout, words, share))
    if not opponents:
        raise NoOpponent(
            f"random: there is no other network within {TOLERANCE:.0%} of the chosen layout's "
            f"{contest.cost}"
        )
    return opponents


def _draws(contest: Contest) -> Iterator[Layout]:
    """Draws; where the layouts can be listed, all of them behind the draws, in random order."""
    networks, slots = contest.request.networks, contest.request.slots
    generator = np.random.default_rng(contest.request.config.seed)
    candidates = len(contest.request.candidates)
    for _ in range(TRIES):
        yield networks.layout(tuple(generator.integers(candidates, size=slots).tolist()))
    if networks.listed(slots):
        every = list(networks.layouts(slots))
        for index in generator.permutation(len(every)).tolist():
            yield networks.layout(every[index])


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


def interleaved_short(contest: Contest) -> list[Opponent]:
    """Interleaved with the most slots that cost no more than the chosen layout, but 3%.

    NoOpponent where the whole of it costs no more, or even one slot costs more.
    """
    slots, share = most_slots(contest, "interleaved_short")
    whole = contest.interleaved()
    if slots == len(whole):
        raise NoOpponent(
            f"interleaved_short: interleaved costs {share:.3f}x of the chosen layout's "
            f"{contest.cost}, so nothing is cut"
        )
    words = f"interleaved of {slots} slots, {contest.cost} {share:.3f}x"
    return [Opponent(f"interleaved-{slots}", whole[:slots], words, share)]


def most_slots(contest: Contest, name: str) -> tuple[int, float]:
    """How many slots of interleaved cost no more than the chosen layout, but 3%, and their share.

    NoOpponent, of that name, where even one costs more.
    """
    whole = contest.interleaved()
    shorter = [whole[:slots] for slots in range(len(whole), 0, -1)]
    likely = [layout for layout in shorter if contest.predicted(layout) <= _MEASURED]
    for layout, share in zip(likely, contest.measured(likely), strict=True):
        if share <= 1.0 + TOLERANCE:
            return len(layout), share
    raise NoOpponent(f"{name}: even one slot costs more {contest.cost}")


def interleaved_narrow(contest: Contest) -> list[Opponent]:
    """Interleaved with the widest dense blocks that cost no more than the chosen layout, but 3%.

    NoOpponent where interleaved costs no more as it is, or the narrowest one costs more.
    """
    whole = contest.interleaved()
    narrowest = with_width(whole, 0.0)
    one, half, least = contest.measured([whole, with_width(whole, _PROBE), narrowest])
    if one <= 1.0 + TOLERANCE or least > 1.0 + TOLERANCE or one <= half:
        end = "as it is" if one <= 1.0 + TOLERANCE else "at its narrowest"
        share = one if one <= 1.0 + TOLERANCE else least
        raise NoOpponent(
            f"interleaved_narrow: interleaved costs {share:.3f}x of the chosen layout's "
            f"{contest.cost} {end}"
        )
    factor = 1.0 - (one - 1.0) * (1.0 - _PROBE) / (one - half)
    layouts = list(dict.fromkeys(with_width(whole, max(0.0, factor * by)) for by in _AROUND))
    layouts = [layout for layout in layouts if layout != whole] + [narrowest]
    for layout, share in zip(layouts, contest.measured(layouts), strict=True):
        if share <= 1.0 + TOLERANCE:
            (width, *_) = dense_widths(layout)
            words = f"interleaved with d_ffn {width}, {contest.cost} {share:.3f}x"
            return [Opponent(f"interleaved-ffn{width}", layout, words, share)]
    raise NoOpponent(f"interleaved_narrow: no width has the chosen layout's {contest.cost}")


def with_width(layout: Layout, factor: float) -> Layout:
    """The layout with dense blocks so many times as wide, rounded down, under labels of their own.

    None becomes narrower than 8; one whose width does not change stays as it is.
    """
    return tuple(_resized(slot, factor) for slot in layout)


def _resized(slot: Candidate, factor: float) -> Candidate:
    if not isinstance(slot, DenseOptions):
        return slot
    width = max(GRAIN, int(slot.d_ffn * factor / GRAIN + 1e-9) * GRAIN)
    if width == slot.d_ffn or (factor >= 1.0 and width < slot.d_ffn):
        return slot
    return slot.model_copy(update={"d_ffn": width, "label": f"{slot.label[:30]}_{width}"})


def dense_widths(layout: Layout) -> list[int]:
    """The inner widths of a layout's dense blocks, in order."""
    return [slot.d_ffn for slot in layout if isinstance(slot, DenseOptions)]


def sandwich_k(contest: Contest) -> list[Opponent]:
    """s^k (s f)^(n - k) f^k for every k > 0, of the most slots that interleaved may have.

    Press et al. (2020, arXiv 1911.03864, section 5). The order of blocks hardly changes a cost,
    but each is measured, and left out where it costs more by 3%. NoOpponent where none is left.
    """
    slots, _ = most_slots(contest, "sandwich_k")
    request, opponents = contest.request, list[Opponent]()
    k_of: dict[Layout, int] = {}
    for k in range(1, slots // 2 + 1):
        config = request.config.model_copy(update={"k": k})
        # The last two of an even number of slots are one layout.
        k_of.setdefault(sandwich(replace(request, slots=slots, config=config)).layout, k)
    layouts = [*k_of]
    new = set(contest.new(layouts))
    for layout, share in zip(layouts, contest.measured(layouts), strict=True):
        if share <= 1.0 + TOLERANCE and layout in new:
            k = k_of[layout]
            words = f"sandwich, k = {k}, of {slots} slots, {contest.cost} {share:.3f}x"
            opponents.append(Opponent(f"sandwich-{slots}-k{k}", layout, words, share))
    if not opponents:
        raise NoOpponent(
            f"sandwich_k: no other sandwich of {slots} slots has the chosen layout's {contest.cost}"
        )
    return opponents


# By the name in compare.opponents.
OPPONENTS: dict[str, Callable[[Contest], Sequence[Opponent]]] = {
    "random": random_equal,
    "permuted": permuted,
    "interleaved_short": interleaved_short,
    "interleaved_narrow": interleaved_narrow,
    "sandwich_k": sandwich_k,
}
