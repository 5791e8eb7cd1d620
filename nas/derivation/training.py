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
    def _numbers(self) -> dict[bytes, int]:
        # Where slots share weights several networks may have these blocks: the first one counts.
        rows = reversed([*enumerate(self.kind_NL)])
        return {row_L.tobytes(): number for number, row_L in rows}

    def number_of(self, row: Sequence[int]) -> int | None:
        """The number of the network with these kinds of blocks; None where there is none."""
        padded_L = np.full(self.kind_NL.shape[1], NONE, dtype=np.int8)
        if len(row) > len(padded_L):
            return None
        padded_L[: len(row)] = row
        return self._numbers.get(padded_L.tobytes())

    @cached_property
    def rule_of(self) -> dict[int, str]:
        """The first rule that names a network, by its number."""
        return {number: name for name, number in reversed([*self.rules.items()])}

    def letters(self, number: int) -> str:
        """The layout of a network, in letters."""
        return layout_letters(self.layouts[number])


@dataclass(frozen=True)
class Trainings:
    """Train networks by their numbers and remember what came of it.

    Attributes:
        train: gives nats of all networks with the first seed, then with the next one.
        say: shows a line of progress.
        results: what was trained, in order.
    """

    train: Callable[[Sequence[int], Length, Sequence[int]], Iterable[float]]
    say: Callable[[str], None] = lambda line: None
    results: dict[Training, float] = field(default_factory=dict)

    def __call__(self, networks: Sequence[int], length: Length, seeds: Sequence[int]) -> None:
        """Train every network with every seed.

        Raises:
            Diverged: all trainings of this length did: nothing could be chosen by them.
        """
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

    Attributes:
        network: its number.
        finalists: those of the last choice, the best first; empty where there was none.
        best_rule: the best network among them that a rule names; None where there is none.
        lead: by how many nats the chosen one is expected to be better than that, and the standard
            deviation of this.
    """

    network: int
    finalists: tuple[int, ...] = ()
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


def trained_rows(
    space: Space,
    results: Results,
    answer: Answer,
    expected: Mapping[int, tuple[float, float]],
    foreseen: Mapping[int, float] | None = None,
) -> list[Row]:
    """Every training in order, and what is expected of its network at full length, with its sd.

    `foreseen` is of full trainings what the short ones alone let expect of them.
    """

    def row(one: Training, nats: float) -> Row:
        mean, sd = expected[one.network]
        known = foreseen is not None and one.length == "full"
        return {
            "layout": space.letters(one.network),
            "length": one.length,
            "seed": one.seed,
            "valid_nats": nats,
            "expected_nats": round(mean, 6),
            "expected_sd": round(sd, 6),
            "rule": space.rule_of.get(one.network, ""),
            "flops_per_token": round(float(space.flops_N[one.network]), 1),
            "foreseen_nats": round(foreseen[one.network], 6) if foreseen and known else "",
            "answer": "yes" if one.network == answer.network else "",
        }

    return [row(one, nats) for one, nats in results.items()]


def pareto_front(space: Space, expected: Iterable[tuple[int, float, float]]) -> list[Row]:
    """The networks that no cheaper one is expected to beat, the cheapest first.

    `expected` has number, nats and standard deviation beside the chosen network.
    """
    front, least = list[Row](), math.inf
    for number, nats, sd in sorted(expected, key=lambda one: (space.flops_N[one[0]], one[1])):
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
    return front


def beside_the_best_rule(space: Space, answer: Answer) -> str:
    """How the answer stands beside the best rule, or that a rule is the answer."""
    if answer.best_rule is None:
        return "no rule is within reach"
    name = space.rule_of[answer.best_rule]
    if answer.network == answer.best_rule:
        return f"the rule is the answer: {name}"
    lead, sd = answer.lead
    rule = f"{space.letters(answer.best_rule)} ({name})"
    return f"{lead:.4f} nats (sd {sd:.4f}) better than the best rule, {rule}"
