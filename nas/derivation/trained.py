"""The best of what rules and a search propose, all of it trained in full.

No surrogate, and no trainings of half length. What it is worth beside other methods:
docs/layoutbench.md.
"""

import math
from dataclasses import dataclass
from statistics import fmean

from model import Layout
from nas.derivation.base import Derived, Request, derived_by
from nas.derivation.config import TrainingsConfig
from nas.derivation.from_search import beam, top_k
from nas.derivation.predictor import Deviations
from nas.derivation.space import layout_space
from nas.derivation.training import (
    Answer,
    Results,
    Space,
    Training,
    Trainings,
    training_noise,
)

# Last of all orders of the same blocks by plain recipes; with token shift `after dense` is ahead.
_LEFT_OUT = "attention blocks last"
_DEFAULT = TrainingsConfig()


@dataclass(frozen=True)
class Trained:
    """Train all that rules and a search name once, the best ones again; the best mean answers.

    Attributes:
        again: how many are trained with every seed; the best rule comes on top.
        seeds: of the trainings; all are trained with the first.
        noise_nats: least standard deviation of one training, of which the lead's follows; more
            where the repeated trainings lie further apart (`training_noise`).
    """

    again: int = _DEFAULT.best
    seeds: tuple[int, ...] = _DEFAULT.full_seeds
    noise_nats: float = Deviations.noise_full

    def __call__(self, space: Space, train: Trainings) -> Answer:
        """See `Method`."""
        first, *others = self.seeds
        named, results = self.named(space), train.results
        rules = sum(number in space.rule_of for number in named)
        # The best rule is one of the best anyway where too few others could be better.
        again = min(self.again + (0 < rules <= len(named) - self.again), len(named))
        words = f"trained: {len(named)} hand-written and searched layouts"
        words += ", then the best of them again" if others else ""
        train.foresee(words, 0, len(named) + again * len(others))
        train(named, "full", [first])
        order = sorted(named, key=lambda n: (results[Training(n, "full", first)], n))
        rule = next((number for number in order if number in space.rule_of), None)
        chosen = [*dict.fromkeys([*order[: self.again], *([] if rule is None else [rule])])]
        if others:
            train.foresee("trained: the best of them again", 0, len(chosen) * len(others))
            train(chosen, "full", others)
        nats = {
            number: fmean(results[Training(number, "full", seed)] for seed in self.seeds)
            for number in chosen
        }
        order = sorted(chosen, key=lambda number: (nats[number], number))
        rule = next((number for number in order if number in space.rule_of), None)
        lead = (0.0, 0.0)
        if rule is not None and rule != order[0] and nats[rule] < math.inf:
            noise = training_noise(chosen, self.seeds, results, self.noise_nats)
            lead = nats[rule] - nats[order[0]], noise * math.sqrt(2 / len(self.seeds))
        return Answer(order[0], tuple(order), rule, lead)

    def named(self, space: Space) -> list[int]:
        """The networks that rules and a search name, each once."""
        rules = [n for name, n in space.rules.items() if not name.startswith(_LEFT_OUT)]
        return list(dict.fromkeys([*rules, *space.proposed]))

    def expected(self, results: Results) -> dict[int, tuple[float, float]]:
        """Nats and standard deviation of what was trained, as if each had all seeds.

        What was trained once gets what the others' further seeds were more or less on average; of
        what diverged once, the worst of the others. Those with further seeds were chosen for a low
        first one, so the rest are expected too high, at most by the noise of a training.
        """
        worst = max((nats for nats in results.values() if nats < math.inf), default=0.0)
        diverged = {one.network for one, nats in results.items() if nats == math.inf}
        nats_of: dict[int, list[float]] = {}
        for one, value in results.items():
            nats_of.setdefault(one.network, []).append(min(value, worst))
        again = [number for number, nats in nats_of.items() if len(nats) == len(self.seeds)]
        # The mean of all seeds less the first, over the networks that have them all.
        more = [fmean(nats_of[number]) - nats_of[number][0] for number in again]
        noise = training_noise(again, self.seeds, results, self.noise_nats)
        expected = dict[int, tuple[float, float]]()
        for number, nats in nats_of.items():
            of_all = fmean(nats) + (0.0 if number in again else fmean(more or [0.0]))
            mean = worst if number in diverged else of_all
            expected[number] = mean, noise / math.sqrt(len(nats))
        return expected


def trained(request: Request) -> Derived:
    """Train the rules' networks, and a search's best ones, in full; the best of two seeds answers.

    Rules: attention first, spread and early (with token shift after a dense block), with every
    number of attention blocks and as many dense ones as the limits allow. Where a search was made,
    the `derive.top` networks that `top_k` scores are trained too. Trainings that are there already
    are not made again.

    Raises:
        ValueError: no network keeps the limits, or no rule is within them and there is no search.
    """
    config = request.config.trainings
    space = layout_space(request, _proposals(request))
    method, train = Trained(config.best, config.full_seeds), request.trainings(space)
    named = method.named(space)
    if not named:
        raise ValueError(
            "trained: no hand-written layout of attention and dense is possible with these "
            "candidates within derive.budget, and there is no search that proposes others; give a "
            "larger budget, or search first"
        )
    answer = method(space, train)
    words = (
        f"trained: the best of {len(named)} hand-written and searched layouts by "
        f"{len(train.results)} trainings of full length"
    )
    expected = method.expected(train.results)
    return derived_by(space, train.results, answer, words, expected, expected)


def _proposals(request: Request) -> list[Layout]:
    """What a search scores best within the limits, where one was made; the best first."""
    if not request.trajectories:
        return []
    scored = (top_k if request.alpha_learned else beam)(request).ranked
    return [*scored[: request.config.top]]
