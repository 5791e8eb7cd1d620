"""The predictor and its opponents on parts of one table, each with as much training as it took.

Finals take what they take: their costs say how much.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nas.probing.base import Array, Method
from nas.probing.finals import Finals
from nas.probing.opponents import (
    Halving,
    LocalEvolution,
    RandomSearch,
    RulesAlone,
    SearchFinals,
)
from nas.probing.predictor import Predictor
from nas.probing.replay import Outcome, Part, Truth, covered, parts, replay
from nas.statistics.intervals import paired_interval

PREDICTOR = "predictor"
SEARCH, WITH_SEARCH = "search, finals", "predictor + search"
FINALS, FINALS_WITH_SEARCH = "finals", "finals + search"
# By name what spends as much as the predictor did, with draws of its own in every replay.
OPPONENTS: Mapping[str, Callable[[float, int], Method]] = {
    "random search": RandomSearch,
    "successive halving": Halving,
    "local evolution": LocalEvolution,
    "rules alone": lambda cost, seed: RulesAlone(cost),
    "random probes": lambda cost, seed: Predictor(drawn_by=seed),
}


@dataclass(frozen=True)
class Proposals:
    """The networks that one search proposes, the best first, and what it cost."""

    networks: tuple[int, ...]
    cost: float


@dataclass(frozen=True)
class Contest:
    """What methods reached, replay by replay, on the same parts of a table.

    Attributes:
        regrets_nats: by method; "best rule" is that of least validation nats by the seeds that do
            not judge, "oracle rule" that of least test nats by all. Neither pays for its choice.
        costs: by method, in full trainings of a network of mean FLOPs.
        networks: how many there are to choose from.
        rules: how many of them rules name.
        coverage: how many networks lie within the predictor's 80% intervals; None: no seed is left
            that could say so.
    """

    regrets_nats: Mapping[str, Array]
    costs: Mapping[str, Array]
    networks: int
    rules: int
    coverage: float | None

    def ahead(self, opponent: str) -> tuple[float, float]:
        """The predictor's mean regret less an opponent's, and the half-width of its interval."""
        less = self.regrets_nats[PREDICTOR] - self.regrets_nats[opponent]
        return paired_interval(less.tolist())


def contest(truth: Truth, count: int, seed: int = 0, searches: Sequence[Proposals] = ()) -> Contest:
    """Replay all methods on so many parts of a table.

    Where searches were made, each replay has the proposals of one: a method that trains them for as
    much as the predictor costs, search included, and the predictor and finals that train them too,
    which pay for the search on top.
    """
    outcomes: dict[str, list[Outcome]] = {}
    rules: dict[str, list[float]] = {}
    coverage = list[float]()
    predictor = Predictor()
    for part in parts(truth, count, seed, [one.networks for one in searches]):
        alone = part.without_proposals()
        first = replay(alone.truth, predictor, part.judges)
        outcomes.setdefault(PREDICTOR, []).append(first)
        for name, method_of in OPPONENTS.items():
            method = method_of(first.cost, part.number)
            outcomes.setdefault(name, []).append(replay(alone.truth, method, part.judges))
        outcomes.setdefault(FINALS, []).append(replay(alone.truth, Finals(), part.judges))
        if searches:
            spent = searches[part.number % len(searches)].cost
            with_search: dict[str, Method] = {
                SEARCH: SearchFinals(first.cost, spent),
                WITH_SEARCH: predictor,
                FINALS_WITH_SEARCH: Finals(),
            }
            for name, method in with_search.items():
                outcome = replay(part.truth, method, part.judges, spent)
                outcomes.setdefault(name, []).append(outcome)
        for name, regret in _rule_regrets(part).items():
            rules.setdefault(name, []).append(regret)
        inside = covered(alone, predictor, first)
        coverage += [] if inside is None else [inside]
    regrets = {name: [one.regret for one in of] for name, of in outcomes.items()} | rules
    return Contest(
        regrets_nats={name: np.array(of) for name, of in regrets.items()},
        costs={name: np.array([one.cost for one in of]) for name, of in outcomes.items()},
        networks=len(truth.space),
        rules=len(set(truth.space.rules.values())),
        coverage=float(np.mean(coverage)) if coverage else None,
    )


def _rule_regrets(part: Part) -> dict[str, float]:
    numbers = list(dict.fromkeys(part.truth.space.rules.values()))
    if not numbers:
        return {}
    test_NS, judges = part.truth.test_NS, list(part.judges)
    others = [seed for seed in range(test_NS.shape[1]) if seed not in judges] or judges
    judged_N, chosen_N = (
        test_NS[:, judges].mean(axis=1),
        part.truth.valid_NS[:, others].mean(axis=1),
    )
    best = test_NS[:, others].mean(axis=1).argmin()
    chosen = {"best rule": chosen_N, "oracle rule": test_NS.mean(axis=1)}
    return {
        name: float(judged_N[min(numbers, key=lambda n: nats_N[n])] - judged_N[best])
        for name, nats_N in chosen.items()
    }
