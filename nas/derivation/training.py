"""Trainings that a method asks for: how it asks, what it is given, and what it answers.

N networks   L slots   K kinds   S seeds
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from model import Layout, layout_letters
from training.signals import Diverged

Array = NDArray[np.float64]
Kinds = NDArray[np.int8]
Length = Literal["half", "full"]
# Of a table that a derivation leaves.
Row = dict[str, Any]
# In a row of kinds: no block.
NONE = -1


@dataclass(frozen=True, order=True)
class Training:
    """One training of a network of the space, by its number; half length has its own schedule."""

    network: int
    length: Length
    seed: int


# Validation nats; of a training that diverged they are infinite.
Results = Mapping[Training, float]


@dataclass(frozen=True)
class Space:
    """The networks that a method chooses among.

    Attributes:
        kind_NL: the kinds of a network's blocks, in order, then `NONE`; what adds nothing is left
            out.
        kinds: names of the kinds; the last one is the reference of the features.
        flops_N: of a forward pass per token, by which trainings are paid.
        rules: the networks that rules name.
        proposed: the networks that a search proposes, the best first.
        layouts: a layout of each network; a table of trainings needs none.
    """

    kind_NL: Kinds
    kinds: tuple[str, ...]
    flops_N: Array
    rules: Mapping[str, int] = field(default_factory=dict)
    proposed: tuple[int, ...] = ()
    layouts: tuple[Layout, ...] = ()

    def __len__(self) -> int:
        return len(self.kind_NL)

    @cached_property
    def number_of(self) -> dict[tuple[int, ...], int]:
        """The number of the network with these kinds of blocks."""
        # Where slots share weights several networks may have these blocks: the first one counts.
        rows = reversed([*enumerate(self.kind_NL.tolist())])
        return {tuple(kind for kind in row if kind != NONE): number for number, row in rows}

    @cached_property
    def rule_of(self) -> dict[int, str]:
        """The first rule that names a network, by its number."""
        return {number: name for name, number in reversed([*self.rules.items()])}

    def letters(self, number: int) -> str:
        """The layout of a network, in letters."""
        return layout_letters(self.layouts[number])


@dataclass(frozen=True)
class Trainings:
    """Train networks by their numbers and remember what came of it, in order.

    `train` gives nats of all networks with the first seed, then with the next one; `foresee` is
    told, with words, how many trainings of half and of full length are to come at most.
    """

    train: Callable[[Sequence[int], Length, Sequence[int]], Iterable[float]]
    say: Callable[[str], None] = lambda line: None
    foresee: Callable[[str, int, int], None] = lambda words, half, full: None
    results: dict[Training, float] = field(default_factory=dict)

    def __call__(self, networks: Sequence[int], length: Length, seeds: Sequence[int]) -> None:
        """Train every network with every seed; Diverged where all trainings of this length did."""
        asked = [Training(network, length, seed) for seed in seeds for network in networks]
        if not asked:
            return
        self.results.update(zip(asked, self.train(networks, length, seeds), strict=True))
        nats = [nats for training, nats in self.results.items() if training.length == length]
        if min(nats) == math.inf:
            raise Diverged(
                f"all {len(nats)} trainings of {length} length diverged; lower "
                "retrain.optimiser.lr or raise retrain.optimiser.warmup_steps, in another --run "
                "directory"
            )


@dataclass(frozen=True)
class Answer:
    """The network that a method chose.

    `ranked` are those of the last choice, the best first; `best_rule` the best of them that a
    rule names; `lead` by how many nats the chosen one is expected to be better than that, and the
    standard deviation of this.
    """

    network: int
    ranked: tuple[int, ...] = ()
    best_rule: int | None = None
    lead: tuple[float, float] = (0.0, 0.0)


# Chooses a network by trainings; the same trainings give the same answer.
Method = Callable[[Space, Trainings], Answer]


def training_noise(
    networks: Sequence[int], seeds: Sequence[int], results: Results, least: float
) -> float:
    """Standard deviation of one full training in nats; never below `least`.

    Of the networks that have every seed: what is left of their nats without each network's mean
    and each seed's. Below `least` an estimate from a few trainings would be luck.
    """
    nats_NS = np.array(
        [[results[Training(number, "full", seed)] for seed in seeds] for number in networks]
    )
    nats_NS = nats_NS[np.isfinite(nats_NS).all(axis=1)]
    freedom = (len(nats_NS) - 1) * (len(seeds) - 1)
    if freedom < 1:
        return least
    left_NS = nats_NS - nats_NS.mean(axis=1, keepdims=True)
    left_NS -= left_NS.mean(axis=0)
    return max(least, math.sqrt(float((left_NS**2).sum()) / freedom))


def beside_the_best_rule(space: Space, answer: Answer) -> str:
    """How the answer stands beside the best rule, or that a rule is the answer."""
    if answer.best_rule is None:
        return "no hand-written layout is within the limits"
    name = space.rule_of[answer.best_rule]
    if answer.network == answer.best_rule:
        return f"the best is a hand-written layout ({name})"
    lead, sd = answer.lead
    rule = f"{space.letters(answer.best_rule)} ({name})"
    better = f"the best is {lead:.4f} nats/token (sd {sd:.4f}) better"
    return f"{better} than the best hand-written one, {rule}"
