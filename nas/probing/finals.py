"""Rules and proposals by full trainings: no surrogate, and no trainings of half length.

What it is worth beside other methods: docs/experiments/layoutbench2.md.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from nas.probing.base import Answer, Results, Space, Training
from nas.probing.noise import training_noise
from nas.probing.predictor import Predictor
from nas.probing.regression import Deviations

# Of all orders of the same blocks the last one, in both tables, whatever their number.
_LEFT_OUT = "dense first"


@dataclass(frozen=True)
class Finals:
    """Train all that rules and a search name once, the best ones again; the best mean answers.

    Attributes:
        again: how many are trained with every seed; the best rule comes on top.
        seeds: of the trainings; all are trained with the first.
        noise_nats: least standard deviation of one training, of which the lead's follows; more
            where the repeated trainings lie further apart (`training_noise`).
    """

    again: int = Predictor.finalists
    seeds: tuple[int, ...] = Predictor.final_seeds
    noise_nats: float = Deviations.noise_full

    def __call__(self, space: Space, results: Results) -> Sequence[Training] | Answer:
        """See `Method`."""
        first, *others = self.seeds
        named = self.named(space)
        once = [Training(number, "full", first) for number in named]
        if missing := [one for one in once if one not in results]:
            return missing
        order = sorted(named, key=lambda n: (results[Training(n, "full", first)], n))
        rules = set(space.rules.values())
        best_rule = next((number for number in order if number in rules), None)
        chosen = [*order[: self.again]]
        if best_rule is not None and best_rule not in chosen:
            chosen.append(best_rule)
        both = [Training(number, "full", seed) for seed in others for number in chosen]
        if missing := [one for one in both if one not in results]:
            return missing
        return self._answer(space, chosen, results)

    def named(self, space: Space) -> list[int]:
        """The networks that rules and a search name, each once."""
        rules = [n for name, n in space.rules.items() if not name.startswith(_LEFT_OUT)]
        return list(dict.fromkeys([*rules, *space.proposed]))

    def _answer(self, space: Space, chosen: Sequence[int], results: Results) -> Answer:
        nats = {
            number: fmean(results[Training(number, "full", seed)] for seed in self.seeds)
            for number in chosen
        }
        order = sorted(chosen, key=lambda number: (nats[number], number))
        rules = set(space.rules.values())
        rule = next((number for number in order if number in rules), None)
        lead = (0.0, 0.0)
        if rule is not None and rule != order[0] and nats[rule] < math.inf:
            noise = training_noise(chosen, self.seeds, results, self.noise_nats)
            lead = nats[rule] - nats[order[0]], noise * math.sqrt(2 / len(self.seeds))
        return Answer(order[0], tuple(order), rule, lead)

    def expected(self, results: Results) -> dict[int, tuple[float, float]]:
        """Nats and standard deviation of what was trained, as if each had all seeds.

        What was trained once gets what the others' further seeds were more or less on average; of
        what diverged once, the worst of the others.
        """
        worst = max((nats for nats in results.values() if nats < math.inf), default=0.0)
        diverged = {one.network for one, nats in results.items() if nats == math.inf}
        by_network: dict[int, dict[int, float]] = {}
        for one, nats in results.items():
            by_network.setdefault(one.network, {})[one.seed] = min(nats, worst)
        more = self._more_of_all_seeds(by_network)
        again = [number for number, of in by_network.items() if len(of) == len(self.seeds)]
        noise = training_noise(again, self.seeds, results, self.noise_nats)
        return {
            number: (
                worst
                if number in diverged
                else fmean(of.values()) + (more if len(of) < len(self.seeds) else 0.0),
                noise / math.sqrt(len(of)),
            )
            for number, of in by_network.items()
        }

    def _more_of_all_seeds(self, by_network: Mapping[int, Mapping[int, float]]) -> float:
        """The mean of all seeds less the first, over the networks that have them all."""
        whole = [of for of in by_network.values() if len(of) == len(self.seeds)]
        return fmean(fmean(of.values()) - of[self.seeds[0]] for of in whole) if whole else 0.0
