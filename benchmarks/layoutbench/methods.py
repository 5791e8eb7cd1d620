"""Methods that `predictor` must beat for as much training: each spends what it is given.

A full training of a network of mean FLOPs costs 1, one of half length 1/2. Seeds of trainings that
choose are those of the finals of `predictor`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nas.derivation.predictor import PROBE_SEED, Features, Predictor
from nas.derivation.training import Answer, Length, Method, Results, Space, Training, Trainings

FIRST, SECOND = Predictor.final_seeds


def cost_of(space: Space, training: Training) -> float:
    """Cost in full trainings of a network of mean FLOPs."""
    share = 0.5 if training.length == "half" else 1.0
    return share * float(space.flops_N[training.network] / space.flops_N.mean())


def _train_affordable(
    space: Space, train: Trainings, networks: Sequence[int], seeds: Sequence[int], cost: float
) -> None:
    """Train in full, by one seed and then the next, while the cost allows it; at least one."""
    spent = 0.0
    for training in (Training(n, "full", seed) for seed in seeds for n in networks):
        spent += cost_of(space, training)
        if train.results and spent > cost:
            return
        train([training.network], "full", [training.seed])


def _best(results: Results) -> int:
    """The network of the best mean over its trainings."""
    nats: dict[int, list[float]] = {}
    for one, value in results.items():
        nats.setdefault(one.network, []).append(value)
    return min(nats, key=lambda number: (float(np.mean(nats[number])), number))


@dataclass(frozen=True)
class RandomSearch:
    """Train drawn networks at full length once; the best one is the answer."""

    cost: float
    seed: int

    def __call__(self, space: Space, train: Trainings) -> Answer:
        """See `Method`."""
        order = np.random.default_rng(self.seed).permutation(len(space)).tolist()
        _train_affordable(space, train, order, [FIRST], self.cost)
        return Answer(_best(train.results))


@dataclass(frozen=True)
class RandomProbes(Predictor):
    """The predictor with its probes behind the first design drawn, as what choosing must beat."""

    drawn_by: int = 0

    def batches(
        self, space: Space, features: Features, known: Results, probed: Sequence[int]
    ) -> Iterator[list[int]]:
        """The first design, then drawn pairs."""
        yield self.first_design(space, features)
        while (left := min(self.cap, len(space)) - len(probed)) > 0:
            rest = np.setdiff1d(np.arange(len(space)), probed)
            generator = np.random.default_rng([self.drawn_by, len(probed)])
            size = min(self.at_once, left)
            yield generator.choice(rest, size=size, replace=False).tolist()


@dataclass(frozen=True)
class SearchFinals:
    """Train what a search proposes at full length, the best one first; of all it takes the best.

    `spent` is what the search cost.
    """

    cost: float
    spent: float

    def __call__(self, space: Space, train: Trainings) -> Answer:
        """See `Method`."""
        _train_affordable(space, train, space.proposed, [FIRST, SECOND], self.cost - self.spent)
        return Answer(_best(train.results))


@dataclass(frozen=True)
class RulesAlone:
    """Train every rule's networks at full length, with a second seed where there is room."""

    cost: float

    def __call__(self, space: Space, train: Trainings) -> Answer:
        """See `Method`."""
        numbers = list(dict.fromkeys(space.rules.values())) or [0]
        _train_affordable(space, train, numbers, [FIRST, SECOND], self.cost)
        return Answer(_best(train.results))


@dataclass(frozen=True)
class Halving:
    """Train drawn networks at half length, a third of them at full length, the best two again.

    Successive halving (Jamieson and Talwalkar 2016, arXiv 1502.07943) with two rungs.
    """

    cost: float
    seed: int

    def __call__(self, space: Space, train: Trainings) -> Answer:
        """See `Method`."""
        kept = np.random.default_rng(self.seed).permutation(len(space)).tolist()
        # Of n networks n/2 is spent on the first rung, n/3 on the second, and 2 on the last.
        count = min(len(space), max(3, int((self.cost - 2.0) / (1 / 2 + 1 / 3))))
        rungs: list[tuple[Length, int, int]] = [
            ("half", PROBE_SEED, count), ("full", FIRST, -(-count // 3)), ("full", SECOND, 2),
        ]  # fmt: skip
        for length, seed, keep in rungs:
            rung = {number: Training(number, length, seed) for number in kept[:keep]}
            train([*rung], length, [seed])
            kept = sorted(rung, key=lambda number: train.results[rung[number]])
        sums = {
            n: sum(train.results[Training(n, "full", seed)] for seed in (FIRST, SECOND))
            for n in kept
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

    def __call__(self, space: Space, train: Trainings) -> Answer:
        """See `Method`."""
        generator, spent = np.random.default_rng(self.seed), 0.0
        child: int | None = int(generator.integers(len(space)))
        while child is not None:
            spent += cost_of(space, Training(child, "full", FIRST))
            if train.results and spent > self.cost:
                break
            train([child], "full", [FIRST])
            child = self._child(space, train.results, generator)
        return Answer(_best(train.results))

    def _child(self, space: Space, results: Results, generator: np.random.Generator) -> int | None:
        """A network that differs least from the best one, of those that were not trained."""
        rest = np.setdiff1d(np.arange(len(space)), [one.network for one in results])
        if not len(rest):
            return None
        apart = (space.kind_NL != space.kind_NL[_best(results)]).sum(axis=1)[rest]
        return int(generator.choice(rest[apart == apart.min()]))


# By name what spends as much as the predictor did, with draws of its own in every replay.
BASELINES: Mapping[str, Callable[[float, int], Method]] = {
    "random search": RandomSearch,
    "successive halving": Halving,
    "local evolution": LocalEvolution,
    "rules alone": lambda cost, seed: RulesAlone(cost),
    "random probes": lambda cost, seed: RandomProbes(drawn_by=seed),
}
