"""What a derivation is given and what it answers; layouts as rows of indices.

A choice is the index of a candidate for each slot.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from model import (
    Candidate,
    Evidence,
    Layout,
    Network,
    block_options,
    layout_letters,
    network_from,
    reads_context,
)
from nas.costs.budget import LayoutCost, Limit
from nas.derivation.config import DeriveConfig
from nas.derivation.training import (
    Answer,
    Length,
    Results,
    Row,
    Space,
    Training,
    Trainings,
    beside_the_best_rule,
)
from nas.statistics.paired_scores import Score
from utils.screen import say

if TYPE_CHECKING:
    from nas.derivation.shrink import Parent

Choice = tuple[int, ...]
Train = Callable[[Sequence[Layout], Length, Sequence[int]], Sequence[float]]
# The cost of `context_limit`: blocks that read no earlier token.
CONTEXT = "context"
# Of more layouts than these no list is made; so many are drawn.
MOST_LISTED, TRIES = 100_000, 20_000


class Networks:
    """The networks that layouts of these candidates are; several layouts may be one network."""

    def __init__(self, candidates: Sequence[Candidate], tie_blocks: int | None) -> None:
        self.candidates, self.tie_blocks = tuple(candidates), tie_blocks
        self._labels_C = [candidate.label for candidate in candidates]

    @cached_property
    def options_C(self) -> list[str | None]:
        """What the block of each candidate computes, without its label; None: it adds nothing."""
        return [block_options(candidate) for candidate in self.candidates]

    def layout(self, choice: Choice) -> Layout:
        """The candidates of a choice."""
        return tuple(self.candidates[k] for k in choice)

    def of(self, choice: Choice) -> Network:
        """The network of a choice."""
        return network_from(
            [self.options_C[k] for k in choice],
            [self._labels_C[k] for k in choice],
            self.tie_blocks,
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

    def drawn(self, slots: int, seed: int) -> Iterator[Choice]:
        """Uniform draws; then, where the layouts can be listed, all of them in random order."""
        generator = np.random.default_rng(seed)
        for _ in range(TRIES):
            yield tuple(generator.integers(len(self.candidates), size=slots).tolist())
        if self.listed(slots):
            every = list(self.layouts(slots))
            for index in generator.permutation(len(every)).tolist():
                yield every[index]

    def near_forms(self, choice: Choice) -> Iterator[Choice]:
        """The choice, and its network's forms in which the first idle slot stands elsewhere."""
        yield choice
        idle = next((slot for slot, k in enumerate(choice) if self.options_C[k] is None), None)
        if idle is None:
            return
        network, rest = self.of(choice), choice[:idle] + choice[idle + 1 :]
        for slot in range(len(choice)):
            form = (*rest[:slot], choice[idle], *rest[slot:])
            if form != choice and self.of(form) == network:
                yield form


def context_limit(candidates: Sequence[Candidate], slots: int, least: int) -> tuple[Limit, ...]:
    """The limit that leaves `least` slots to blocks that read earlier tokens; none for 0."""
    blind = {candidate.label: float(not reads_context(candidate)) for candidate in candidates}
    cost = LayoutCost(CONTEXT, blind)
    return (Limit(cost, slots - least),) if least else ()


@dataclass(frozen=True)
class Request:
    """What a derivation may use.

    Attributes:
        limits: what a layout may cost at most; `context_limit` is one of them.
        trajectories: the searches' pi.npz by seed; rules need none.
        score: nats of a layout's network by the SuperNet's weights, on the same text for all.
        train: validation nats of layouts, all with the first seed, then with the next one;
            infinite where a training diverged; for methods that train.
        foresee: is told what they will train at most, as `Trainings` is.
        alpha_learned: whether the search moved alpha; with estimator spos it does not.
        tie_blocks: slots so many apart share their weights; None: none do.
        token_shift: whether blocks read half of the token before, dense ones too.
        parent: the trained model that shrinks, for the method that asks for it.
    """

    config: DeriveConfig
    candidates: Sequence[Candidate]
    slots: int
    flops_per_token: Callable[[Layout], float]
    trajectories: Mapping[int, Path] = field(default_factory=dict)
    score: Callable[[Layout], Score] | None = None
    train: Train | None = None
    foresee: Callable[[str, int, int], None] = lambda words, half, full: None
    alpha_learned: bool = True
    tie_blocks: int | None = None
    token_shift: bool = False
    limits: tuple[Limit, ...] = ()
    parent: "Parent | None" = None

    @cached_property
    def networks(self) -> Networks:
        """The networks that its layouts are."""
        return Networks(self.candidates, self.tie_blocks)

    def trainings(self, space: Space) -> Trainings:
        """Trainings of the networks of a space."""
        assert self.train is not None
        train, layouts = self.train, space.layouts
        return Trainings(
            lambda numbers, *how: train([layouts[number] for number in numbers], *how),
            say,
            self.foresee,
        )

    @property
    def must_keep(self) -> str:
        """The keys that limit layouts, for messages."""
        costs = " and ".join(one.cost.name for one in self.limits if one.cost.name != CONTEXT)
        keys = [f"derive.budget ({costs})"] if costs else []
        if any(limit.cost.name == CONTEXT for limit in self.limits):
            keys.append(f"derive.least_context {self.config.least_context}")
        return " and ".join(keys)

    @property
    def has_budget(self) -> bool:
        """Whether costs limit the layouts, and not only the number of blocks that read context."""
        return any(limit.cost.name != CONTEXT for limit in self.limits)

    @property
    def budget_words(self) -> str:
        """What a method's text says of a budget, where there is one."""
        return " within the budget" if self.has_budget else ""

    def allowed(self, choice: Choice) -> bool:
        """Whether a choice keeps every limit."""
        layout = self.networks.layout(choice)
        return all(limit.holds(layout) for limit in self.limits)


@dataclass(frozen=True)
class Considered:
    """A layout scored by the SuperNet's weights; `log_pi` is the sum over its slots."""

    layout: Layout
    log_pi: float
    flops_per_token: float
    score: Score


@dataclass(frozen=True)
class Derived:
    """A fixed layout and what speaks for it.

    `considered` are the layouts among which it is the best, in the order in which they were scored,
    each network once; `ranked` the best ones in order, the layout first. `trained` is what was
    trained for it, in order; `front` the networks that no cheaper one is expected to beat.
    """

    layout: Layout
    evidence: Evidence
    considered: tuple[Considered, ...] = ()
    ranked: tuple[Layout, ...] = ()
    trained: Sequence[Row] = ()
    front: Sequence[Row] = ()
    subsets: Sequence[Row] = ()
    prices: Sequence[Row] = ()

    def marked(self) -> "Derived":
        """The same, whose tables say which layout is the answer; a budget may refuse the first."""
        letters = layout_letters(self.layout)
        trained = [row | {"answer": "yes" * (row["layout"] == letters)} for row in self.trained]
        subsets = sorted(self.subsets, key=lambda row: row["layout"] != letters)
        return replace(self, trained=trained, subsets=subsets)


def derived_by(
    space: Space,
    results: Results,
    answer: Answer,
    words: str,
    expected: Mapping[int, tuple[float, float]],
    beside: Mapping[int, tuple[float, float]],
    foreseen: Sequence[float] = (),
) -> Derived:
    """The answer, every training that it was chosen by in order, and the front of networks.

    `expected` has nats at full length with their standard deviation by network, `beside` the same
    with that of what a network is above the answer. `foreseen` is what the short trainings alone
    let expect. The front has the networks that no cheaper one is expected to beat.
    """

    def row(one: Training, nats: float) -> Row:
        mean, sd = expected[one.network]
        return {
            "layout": space.letters(one.network),
            "length": one.length,
            "seed": one.seed,
            "valid_nats": nats,
            "expected_nats": round(mean, 6),
            "expected_sd": round(sd, 6),
            "rule": space.rule_of.get(one.network, ""),
            "flops_per_token": round(float(space.flops_N[one.network]), 1),
            "foreseen_nats": round(foreseen[one.network], 6)
            if len(foreseen) and one.length == "full"
            else "",
        }

    front, least = list[Row](), math.inf
    for number in sorted(beside, key=lambda n: (space.flops_N[n], beside[n][0])):
        nats, sd = beside[number]
        if nats < least:
            least = nats
            front.append(
                {
                    "layout": space.letters(number),
                    "flops_per_token": round(float(space.flops_N[number]), 1),
                    "expected_nats": round(nats, 6),
                    "expected_sd": round(sd, 6),
                }
            )
    ranked = tuple(space.layouts[number] for number in answer.ranked)
    return Derived(
        layout=ranked[0],
        evidence=Evidence(method=f"{words}; {beside_the_best_rule(space, answer)}"),
        ranked=ranked,
        trained=[row(one, nats) for one, nats in results.items()],
        front=front,
    )
