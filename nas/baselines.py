"""Baselines of a chosen layout that cost what it costs, and which of them a comparison has.

The rules stand in nas/derivation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from model.blocks import Candidate
from model.blocks.options import DenseOptions
from model.layout import Layout, Network, network_of
from nas.derivation import DERIVATIONS
from utils.validation import Section

if TYPE_CHECKING:
    from nas.derivation.base import Request

# A layout counts as equal where its cost lies so near to the chosen one's.
TOLERANCE = 0.03
TRIES = 20_000
# So many more than are wanted are measured at once, and somewhat dearer ones: predictions err.
_MORE, _MEASURED = 4, 1.15
# Costs are linear in the width, so widths around the line's are measured.
_AROUND = (1.1, 1.05, 1.0, 0.95, 0.9)
_PROBE = 0.5
# Widths are multiples of this: matrix products are no faster for what lies between.
GRAIN = 8


class NoBaseline(ValueError):
    """There is no such baseline of this cost; the words say why."""


@dataclass(frozen=True)
class Baseline:
    """A layout with the name of its architecture and how it came about.

    `share` is its cost as a multiple of the chosen layout's.
    """

    name: str
    layout: Layout
    words: str
    share: float


@dataclass(frozen=True)
class Matching:
    """A chosen layout and what baselines may ask of others.

    Attributes:
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

    def new(self, layouts: Iterable[Layout]) -> Iterator[Layout]:
        """The layouts in their order, each network once and none that is taken."""
        known = set(self.taken)
        for layout in layouts:
            network = network_of(layout, self.request.tie_blocks)
            if network not in known:
                known.add(network)
                yield layout

    def interleaved(self) -> Layout:
        """The layout of that rule; NoBaseline where a kind is no candidate."""
        from nas.derivation.rules import interleaved

        try:
            return interleaved(self.request).layout
        except ValueError as error:
            raise NoBaseline(str(error)) from None

    def baselines(
        self, kind: str, proposed: Iterable[tuple[str, Layout]], most: int = 1, *, equal: bool
    ) -> list[Baseline]:
        """The first so many layouts, each with its words, that cost as much when they are measured.

        `equal`: within 3%, else at most 3% more. They have numbers for names. NoBaseline, of this
        kind, where there is none.
        """
        rest, found = iter(proposed), list[Baseline]()
        while len(found) < most and (batch := list(islice(rest, most - len(found) + _MORE))):
            shares = self.measured([layout for _, layout in batch])
            for (words, layout), share in zip(batch, shares, strict=True):
                fits = is_equal(share) if equal else share <= 1.0 + TOLERANCE
                if fits and len(found) < most:
                    told = f"{words}, {self.cost} {share:.3f}x of the chosen layout's"
                    found.append(Baseline(str(len(found)), layout, told, share))
        if not found:
            raise NoBaseline(
                f"{kind}: there is no other network within {TOLERANCE:.0%} of the chosen layout's "
                f"{self.cost}"
            )
        return found


def is_equal(share: float) -> bool:
    """Whether a cost is that of the chosen layout, but for the tolerance."""
    return abs(share - 1.0) <= TOLERANCE


def of_equal_cost(cost: str, shares: Mapping[str, float]) -> str:
    """Which cost baselines have; cuts may fall short of it, a time may be other than predicted."""
    others = [f"{name} {share:.3f}x" for name, share in shares.items() if not is_equal(share)]
    words = f"baselines of equal cost have the {cost} of the chosen layout, within {TOLERANCE:.0%}"
    return f"{words}; these do not: {', '.join(others)}" if others else words


def random_equal(matching: Matching) -> list[Baseline]:
    """Uniform draws, each another network, that cost as much when they are predicted and measured.

    Li and Talwalkar (2019, arXiv 1902.07638): a search that does not beat random layouts of its
    cost found nothing. The draw of seed k depends on k alone. There may be fewer than are wanted;
    NoBaseline where there is none.
    """
    request = matching.request
    drawn = request.networks.drawn(request.slots, request.config.seed)
    likely = (
        ("random", layout)
        for layout in matching.new(map(request.networks.layout, drawn))
        if is_equal(matching.predicted(layout))
        and all(limit.holds(layout) for limit in request.limits)
    )
    found = matching.baselines("random", likely, matching.count, equal=True)
    return [replace(one, name=f"random-{one.name}") for one in found]


def permuted(matching: Matching) -> list[Baseline]:
    """Uniform permutations of the chosen layout, each another network.

    They cost what it costs, slot by slot; where slots share weights, only some have as many
    parameters. NoBaseline where every permutation takes part already, or has not.
    """
    generator, chosen = np.random.default_rng(matching.request.config.seed), matching.chosen
    other = matching.request.tie_blocks is not None and matching.cost == "parameters"
    drawn = (tuple(chosen[at] for at in generator.permutation(len(chosen))) for _ in range(TRIES))
    shares = ((one, matching.predicted(one) if other else 1.0) for one in matching.new(drawn))
    equal = islice((pair for pair in shares if is_equal(pair[1])), matching.count)
    words = "a permutation of the chosen layout"
    baselines = [
        Baseline(f"permuted-{number}", layout, words, share)
        for number, (layout, share) in enumerate(equal)
    ]
    if not baselines:
        raise NoBaseline(
            "permuted: no permutation of the chosen layout is another network of its cost"
        )
    return baselines


def interleaved_short(matching: Matching) -> list[Baseline]:
    """Interleaved with the most slots that cost no more than the chosen layout, but 3%.

    NoBaseline where the whole of it costs no more, or even one slot costs more.
    """
    whole = matching.interleaved()
    shorter = (whole[:slots] for slots in range(len(whole), 0, -1))
    likely = (layout for layout in shorter if matching.predicted(layout) <= _MEASURED)
    named = ((f"interleaved of {len(layout)} blocks", layout) for layout in likely)
    (one,) = matching.baselines("interleaved_short", named, equal=False)
    if len(one.layout) == matching.request.slots:
        raise NoBaseline(
            f"interleaved_short: interleaved costs {one.share:.3f}x of the chosen layout's "
            f"{matching.cost}, so nothing is cut"
        )
    return [replace(one, name=f"interleaved-{len(one.layout)}")]


def interleaved_narrow(matching: Matching) -> list[Baseline]:
    """Interleaved with the widest dense blocks that cost no more than the chosen layout, but 3%.

    NoBaseline where interleaved costs no more as it is, or every narrower one costs more.
    """
    whole = matching.interleaved()
    full, half = matching.measured([whole, with_width(whole, _PROBE)])
    if full <= 1.0 + TOLERANCE:
        raise NoBaseline(
            f"interleaved_narrow: interleaved costs {full:.3f}x of the chosen layout's "
            f"{matching.cost} as it is"
        )
    factor = 1.0 - (full - 1.0) * (1.0 - _PROBE) / (full - half) if full > half else 0.0
    factors = [*(max(0.0, factor * by) for by in _AROUND), 0.0]
    narrower = dict.fromkeys(with_width(whole, factor) for factor in factors)
    named = ((f"interleaved with d_ffn {dense_widths(one)[0]}", one) for one in narrower)
    (one,) = matching.baselines(
        "interleaved_narrow", (pair for pair in named if pair[1] != whole), equal=False
    )
    return [replace(one, name=f"interleaved-ffn{dense_widths(one.layout)[0]}")]


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


# By the name in compare.baselines.
BASELINES: dict[str, Callable[[Matching], Sequence[Baseline]]] = {
    "random": random_equal,
    "permuted": permuted,
    "interleaved_short": interleaved_short,
    "interleaved_narrow": interleaved_narrow,
}
# Of a model that shrank: rules of nas/dropping.py, and the model itself, which is not trained.
DROPS = tuple(f"drop_{rule}" for rule in ("last", "first", "spread", "cosine", "prices", "random"))
PARENT = "parent"

if TYPE_CHECKING:
    BaselineName = str
else:
    BaselineName = Literal[tuple(dict.fromkeys([*DERIVATIONS, *BASELINES, *DROPS, PARENT]))]


class CompareConfig(Section):
    """Baselines that the chosen layout is compared with."""

    baselines: list[BaselineName] = Field(
        default=["interleaved", "interleaved_short", "random"],
        description="Any derive.method, or baselines that cost as much as the chosen layout: "
        "random; permuted: its blocks in another order; interleaved_short: fewer blocks; "
        "interleaved_narrow: narrower feed-forward blocks. With retrain.start also parent, that "
        "model itself, and rules that drop other blocks of it: drop_last, drop_first, drop_spread, "
        "drop_cosine and drop_prices (which in sum change least, or are cheapest alone), "
        "drop_random.",
    )
    equal: Literal["auto", "flops", "parameters", "cache", "latency", "decode", "train_step"] = (
        Field(
            default="auto",
            description="The cost that these share with it, within 3%; the last three may cost "
            "less. train_step: equal training time. auto: the time that derive.budget limits, else "
            "flops.",
        )
    )
    random_layouts: int = Field(
        default=1, ge=1, description="Number of different random and drop_random baselines."
    )
    permutations: int = Field(
        default=1, ge=1, description="Number of different permuted baselines."
    )
    seeds: list[Annotated[int, Field(ge=0, lt=2**31)]] = Field(
        default=[0, 1, 2], min_length=1, description="Training seeds per layout, all different."
    )

    @model_validator(mode="after")
    def _seeds_differ(self) -> CompareConfig:
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds: must differ, found {self.seeds}; the same run counts once")
        return self
