"""Methods replayed on a table of trainings: what they would have chosen, and what it is worth.

Every replay has a part of the table's networks, drawn anew, and gives the seeds another order, so
that a method which draws nothing varies too. Methods see validation nats; an answer is judged by
test nats. Of each network the trainings of the seeds that chose are not those that judge, where
the table has a seed more than a method needs.

N networks   S seeds
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from nas.probing.base import Answer, Array, Method, Results, Space, Training
from nas.probing.features import features_of
from nas.probing.predictor import Predictor

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
        network: its answer.
        regret: test nats of the answer above those of the best network, by seeds that judge.
        cost: of all its trainings, in full trainings of a network of mean FLOPs.
        results: what was trained.
    """

    network: int
    regret: float
    cost: float
    results: Results = field(repr=False, compare=False)


def replay(truth: Truth, method: Method, judges: Sequence[int], spent: float = 0.0) -> Outcome:
    """Run a method on a table to its answer; seeds 1, 2, ... are the table's in order.

    `judges` are the columns of test nats that judge; the best network is that by the mean of the
    others, where there are others, so that its luck counts no more than the answer's. `spent` is
    what was paid before, such as a search.

    Raises:
        ValueError: the method asks for a seed that the table has not.
    """
    results: dict[Training, float] = {}
    while not isinstance(step := method(truth.space, results), Answer):
        results |= {training: _nats(truth, training) for training in step}
    judged_N = truth.test_NS[:, list(judges)].mean(axis=1)
    others = [seed for seed in range(truth.test_NS.shape[1]) if seed not in judges]
    best = int(truth.test_NS[:, others or list(judges)].mean(axis=1).argmin())
    return Outcome(
        network=step.network,
        regret=float(judged_N[step.network] - judged_N[best]),
        cost=spent + sum(truth.space.cost(training) for training in results),
        results=results,
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


@dataclass(frozen=True)
class Part:
    """The table that one replay sees, and the columns of seeds that judge."""

    number: int
    truth: Truth
    judges: tuple[int, ...]

    def without_proposals(self) -> "Part":
        """The same part for methods that pay for no search."""
        space = replace(self.truth.space, proposed=())
        return replace(self, truth=replace(self.truth, space=space))


def parts(
    truth: Truth, count: int, seed: int = 0, proposals: Sequence[tuple[int, ...]] = ()
) -> Iterator[Part]:
    """So many parts of a table, each with all networks that are named and `SHARE` of the others.

    The last of the shuffled seeds judges alone where there are three or more, else all judge. Of
    the proposals of several searches, each part has those of one in turn.
    """
    generator = np.random.default_rng(seed)
    named = np.unique([*truth.space.rules.values(), *chain(*proposals)]).astype(np.int64)
    others = np.setdiff1d(np.arange(len(truth.space)), named)
    for number in range(count):
        kept = generator.choice(others, size=round(SHARE * len(others)), replace=False)
        seeds = generator.permutation(truth.valid_NS.shape[1]).tolist()
        judges = (len(seeds) - 1,) if len(seeds) > 2 else (*range(len(seeds)),)
        proposed = proposals[number % len(proposals)] if proposals else ()
        of_search = replace(truth, space=replace(truth.space, proposed=proposed))
        numbers = np.sort(np.concatenate([named, kept]))
        yield Part(number, of_search.part(numbers, seeds), judges)


def covered(part: Part, method: Predictor, outcome: Outcome, level: float = 0.8) -> float | None:
    """Of the networks without a full training, how many lie in their interval of this level.

    Of a network's validation nats less the answer's, by a seed that judges, an interval is expected
    from all that the method trained. None: no network is left, or no seed.
    """
    truth, (judge, *_) = part.truth, part.judges
    trained = {one.network for one in outcome.results if one.length == "full"}
    rest = np.setdiff1d(np.arange(len(truth.space)), [*trained])
    if len(part.judges) > 1 or not len(rest):
        return None
    now = method.expected(features_of(truth.space, method.priors), outcome.results)
    noise = 2 * method.deviations.noise_full**2
    sd_N = np.sqrt(now.sd_beside_N(outcome.network) ** 2 + noise)
    above_N = truth.valid_NS[:, judge] - truth.valid_NS[outcome.network, judge]
    off_N = above_N - (now.mean_N - now.mean_N[outcome.network])
    inside_N = np.abs(off_N) <= NormalDist().inv_cdf((1 + level) / 2) * sd_N
    return float(inside_N[rest].mean())
