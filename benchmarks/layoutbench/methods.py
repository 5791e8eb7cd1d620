"""Methods that `predictor` must beat for as much training: each spends what it is given.

A full training of a network of mean FLOPs costs 1, one of half length 1/2. Seeds of trainings that
choose are those of the finals of `predictor`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nas.probing.base import Answer, Length, Method, Results, Space, Training
from nas.probing.predictor import PROBE_SEED, Predictor

FIRST, SECOND = Predictor.final_seeds
Integers = NDArray[np.int64]


def _affordable(space: Space, trainings: Sequence[Training], cost: float) -> list[Training]:
    """As many of the first ones as the cost allows, at least one."""
    spent = np.cumsum([space.cost(training) for training in trainings])
    return [*trainings[: max(1, int((spent <= cost).sum()))]]


def _best(results: Results, trainings: Sequence[Training]) -> int:
    return min(trainings, key=lambda training: (results[training], training.network)).network


def _best_mean(results: Results, trainings: Sequence[Training]) -> int:
    nats: dict[int, list[float]] = {}
    for one in trainings:
        nats.setdefault(one.network, []).append(results[one])
    return min(nats, key=lambda number: (float(np.mean(nats[number])), number))


@dataclass(frozen=True)
class RandomSearch:
    """Train drawn networks at full length once; the best one is the answer."""

    cost: float
    seed: int

    def __call__(self, space: Space, results: Results) -> Sequence[Training] | Answer:
        """See `Method`."""
        order = np.random.default_rng(self.seed).permutation(len(space)).tolist()
        drawn = [Training(number, "full", FIRST) for number in order]
        trainings = _affordable(space, drawn, self.cost)
        if missing := [one for one in trainings if one not in results]:
            return missing
        return Answer(_best(results, trainings))


@dataclass(frozen=True)
class SearchFinals:
    """Train what a search proposes at full length, the best one first; of all it takes the best.

    `spent` is what the search cost.
    """

    cost: float
    spent: float

    def __call__(self, space: Space, results: Results) -> Sequence[Training] | Answer:
        """See `Method`."""
        both = [Training(n, "full", seed) for seed in (FIRST, SECOND) for n in space.proposed]
        trainings = _affordable(space, both, self.cost - self.spent)
        if missing := [one for one in trainings if one not in results]:
            return missing
        return Answer(_best_mean(results, trainings))


@dataclass(frozen=True)
class RulesAlone:
    """Train every rule's networks at full length, with a second seed where there is room."""

    cost: float

    def __call__(self, space: Space, results: Results) -> Sequence[Training] | Answer:
        """See `Method`."""
        numbers = list(dict.fromkeys(space.rules.values())) or [0]
        both = [Training(n, "full", seed) for seed in (FIRST, SECOND) for n in numbers]
        trainings = _affordable(space, both, self.cost)
        if missing := [one for one in trainings if one not in results]:
            return missing
        return Answer(_best_mean(results, trainings))


@dataclass(frozen=True)
class Halving:
    """Train drawn networks at half length, a third of them at full length, the best two again.

    Successive halving (Jamieson and Talwalkar 2016, arXiv 1502.07943) with two rungs.
    """

    cost: float
    seed: int

    def __call__(self, space: Space, results: Results) -> Sequence[Training] | Answer:
        """See `Method`."""
        order = np.random.default_rng(self.seed).permutation(len(space)).tolist()
        # Of n networks n/2 is spent on the first rung, n/3 on the second, and 2 on the last.
        count = min(len(space), max(3, int((self.cost - 2.0) / (1 / 2 + 1 / 3))))
        rungs: list[tuple[Length, int, int]] = [
            ("half", PROBE_SEED, count), ("full", FIRST, -(-count // 3)), ("full", SECOND, 2),
        ]  # fmt: skip
        kept: list[int] = order
        for length, seed, keep in rungs:
            rung = [Training(number, length, seed) for number in kept[:keep]]
            if missing := [one for one in rung if one not in results]:
                return missing
            kept = [one.network for one in sorted(rung, key=results.__getitem__)]
        sums = {
            n: sum(results[Training(n, "full", seed)] for seed in (FIRST, SECOND)) for n in kept
        }
        return Answer(min(sums, key=lambda number: (sums[number], number)))


@dataclass(frozen=True)
class LocalEvolution:
    """Change the best network so far in one place or two, train what comes, keep what is better.

    As aging evolution (Real et al. 2019, arXiv 1802.01548) with the whole past as population: at so
    few trainings nothing ages.
    """

    cost: float
    seed: int

    def __call__(self, space: Space, results: Results) -> Sequence[Training] | Answer:
        """See `Method`."""
        generator = np.random.default_rng(self.seed)
        start = Training(int(generator.integers(len(space))), "full", FIRST)
        trained, spent = [start], space.cost(start)
        while True:
            if missing := [one for one in trained if one not in results]:
                return missing
            best = _best(results, trained)
            child = self._child(space, best, {one.network for one in trained}, generator)
            if child is None or spent + space.cost(child) > self.cost:
                return Answer(best)
            trained, spent = [*trained, child], spent + space.cost(child)

    def _child(
        self, space: Space, best: int, known: set[int], generator: np.random.Generator
    ) -> Training | None:
        """A network that differs least from the best one, of those that were not trained."""
        rest = np.setdiff1d(np.arange(len(space)), [*known])
        if not len(rest):
            return None
        apart = _distance_N(space, best)[rest]
        near = rest[apart == apart.min()]
        return Training(int(generator.choice(near)), "full", FIRST)


def _distance_N(space: Space, number: int) -> Integers:
    return (space.kind_NL != space.kind_NL[number]).sum(axis=1)


# By name what spends as much as the predictor did, with draws of its own in every replay.
OPPONENTS: Mapping[str, Callable[[float, int], Method]] = {
    "random search": RandomSearch,
    "successive halving": Halving,
    "local evolution": LocalEvolution,
    "rules alone": lambda cost, seed: RulesAlone(cost),
    "random probes": lambda cost, seed: Predictor(drawn_by=seed),
}
