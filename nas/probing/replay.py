"""Methods replayed on a table of trainings: what they would have chosen, and what it is worth.

Every replay has a part of the table's networks, drawn anew, and gives the seeds another order, so
that a method which draws nothing varies too. Methods see validation nats; an answer is judged by
test nats. Of each network the trainings of the seeds that chose are not those that judge, where
the table has a seed more than a method needs.

N networks   S seeds
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nas.probing.base import Answer, Array, Method, Space, Training

# Of the networks that no rule names a replay has this part.
SHARE = 0.75


@dataclass(frozen=True)
class Truth:
    """A table of trainings of the networks of a space.

    Attributes:
        valid_NS, test_NS: nats at full length by network and seed.
        half_N: validation nats at half length.
    """

    space: Space
    valid_NS: Array
    test_NS: Array
    half_N: Array

    def part(self, numbers: NDArray[np.int64], seeds: Sequence[int]) -> "Truth":
        """The table of some of its networks, with seeds in this order."""
        space = replace(
            self.space,
            kind_NL=self.space.kind_NL[numbers],
            flops_N=self.space.flops_N[numbers],
            rules={},
            proposed=(),
        )
        place = {int(number): at for at, number in enumerate(numbers)}
        rules = {name: place[n] for name, n in self.space.rules.items() if n in place}
        proposed = tuple(place[n] for n in self.space.proposed if n in place)
        return Truth(
            replace(space, rules=rules, proposed=proposed),
            self.valid_NS[numbers][:, list(seeds)],
            self.test_NS[numbers][:, list(seeds)],
            self.half_N[numbers],
        )


@dataclass(frozen=True)
class Outcome:
    """One replay of a method.

    Attributes:
        regret: test nats of the answer above those of the best network, by seeds that judge.
        cost: of all its trainings, in full trainings of a network of mean FLOPs.
        trainings: how many there were.
    """

    regret: float
    cost: float
    trainings: int


def replay(truth: Truth, method: Method, judges: Sequence[int]) -> Outcome:
    """Run a method on a table to its answer; seeds 1, 2, ... are the table's in order.

    `judges` are the columns of test nats that judge.

    Raises:
        ValueError: the method asks for a seed that the table has not.
    """
    results: dict[Training, float] = {}
    while not isinstance(step := method(truth.space, results), Answer):
        results |= {training: _nats(truth, training) for training in step}
    judged_N = truth.test_NS[:, list(judges)].mean(axis=1)
    return Outcome(
        regret=float(judged_N[step.network] - judged_N.min()),
        cost=sum(truth.space.cost(training) for training in results),
        trainings=len(results),
    )


def _nats(truth: Truth, training: Training) -> float:
    if training.length == "half":
        return float(truth.half_N[training.network])
    seeds = truth.valid_NS.shape[1]
    if not 1 <= training.seed <= seeds:
        raise ValueError(
            f"the table has {seeds} seeds of full length, and a method asks for seed "
            f"{training.seed}; make the table with more (--seeds)"
        )
    return float(truth.valid_NS[training.network, training.seed - 1])


def replays(
    truth: Truth, methods: Mapping[str, Callable[[int], Method]], count: int, seed: int = 0
) -> dict[str, list[Outcome]]:
    """So many replays of each method, all methods on the same parts of the table.

    A method is made of the number of the replay, by which it may draw. The last of the shuffled
    seeds judges alone where there are three or more, else all judge.
    """
    generator = np.random.default_rng(seed)
    named = np.unique([*truth.space.rules.values(), *truth.space.proposed]).astype(np.int64)
    others = np.setdiff1d(np.arange(len(truth.space)), named)
    outcomes: dict[str, list[Outcome]] = {name: [] for name in methods}
    for number in range(count):
        kept = generator.choice(others, size=round(SHARE * len(others)), replace=False)
        seeds = generator.permutation(truth.valid_NS.shape[1]).tolist()
        part = truth.part(np.sort(np.concatenate([named, kept])), seeds)
        judges = [len(seeds) - 1] if len(seeds) > 2 else [*range(len(seeds))]
        for name, method_of in methods.items():
            outcomes[name].append(replay(part, method_of(number), judges))
    return outcomes
