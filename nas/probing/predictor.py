"""Search by trained probes: a regression on short trainings says what to train next.

Performance predictors as in BANANAS (White et al. 2021, arXiv 1910.11858), BRP-NAS (Dudziak et al.
2020, arXiv 2007.08668) and Composer (arXiv 2510.00379).

Differs from the papers: the predictor is a Bayesian linear regression on how many blocks of each
kind a network has and where; rules stand in the first design and in the finals; the answer is
judged by fresh trainings of full length, with the same seeds for every finalist.

N networks
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist

import numpy as np

from nas.probing.base import Answer, Results, Space, Training
from nas.probing.features import Features, Priors, features_of
from nas.probing.noise import training_noise
from nas.probing.regression import Deviations, Posterior, posterior
from nas.probing.rules import KIND_RULES

PROBE_SEED = 0
# So many probes more, beside the `cap`, for each kind beside attention and dense.
CAP_PER_KIND = 3
# Proposals of a search that are probed.
_PROPOSED = 2
# Where rules and proposals are fewer, others make up for them.
_LEAST_DESIGN = 4


@dataclass(frozen=True)
class Predictor:
    """The method; a pure function of the space and of what was trained.

    Attributes:
        cap: probes in all, the first design included.
        at_once: probes that are chosen together, each as if those before it gave what is expected.
        margin_nats: by how much an untrained network must be better to be worth a probe.
        least_chance: with less chance than this of such a network there are no more probes.
        finalists: how many are trained at full length; the best rule comes on top.
        final_seeds: of those trainings; none is the probes'.
        drawn_by: draw the probes behind the first design by this seed, as what choosing them must
            beat; None: choose them.
        caution: by how many standard deviations of its lead over the best probe a network is hoped
            to be better than expected.
    """

    cap: int = 10
    at_once: int = 2
    margin_nats: float = 0.01
    least_chance: float = 0.1
    finalists: int = 3
    final_seeds: tuple[int, ...] = (1, 2)
    drawn_by: int | None = None
    caution: float = 1.0
    priors: Priors = field(default_factory=Priors)
    deviations: Deviations = field(default_factory=Deviations)

    def __call__(self, space: Space, results: Results) -> Sequence[Training] | Answer:
        """See `Method`."""
        features = features_of(space, self.priors)
        known: dict[Training, float] = {}
        for batch in self._batches(space, features, known):
            probes = [Training(network, "half", PROBE_SEED) for network in batch]
            if missing := [probe for probe in probes if probe not in results]:
                return missing
            known |= {probe: results[probe] for probe in probes}
        chosen = finalists(space, self.expected(features, known), self.finalists)
        finals = [Training(number, "full", seed) for seed in self.final_seeds for number in chosen]
        if missing := [final for final in finals if final not in results]:
            return missing
        known |= {final: results[final] for final in finals}
        diverged = {final.network for final in finals if results[final] == np.inf}
        # The regression's noise is that of other trainings; these may lie further apart, which
        # makes the lead less sure. It does not choose otherwise.
        noise = training_noise(chosen, self.final_seeds, results, self.deviations.noise_full)
        as_noisy = replace(self, deviations=replace(self.deviations, noise_full=noise))
        now, spread = (one.expected(features, known) for one in (self, as_noisy))
        return best_of(space, chosen, now, spread, diverged)

    def _batches(self, space: Space, features: Features, known: Results) -> Iterator[Sequence[int]]:
        """The first design, then pairs by what is known by then, until enough is."""
        design = self.first_design(space, features)
        yield design
        probed = [*design]
        while len(probed) < min(self.cap, len(space)):
            count = min(self.at_once, min(self.cap, len(space)) - len(probed))
            if self.drawn_by is not None:
                batch = _drawn(space, probed, count, [self.drawn_by, len(probed)])
            elif self.chance(self.expected(features, known), probed) < self.least_chance:
                return
            else:
                batch = self._next(features, known, probed, count)
            yield batch
            probed += batch

    def first_design(self, space: Space, features: Features) -> list[int]:
        """`rules_of_design`, and where they are few, the networks of which least is known."""
        design = rules_of_design(space)
        while len(design) < min(_LEAST_DESIGN, len(space)):
            # What a training gives does not change how sure it makes.
            sd_N = self.expected(features, {Training(n, "full", n): 0.0 for n in design}).sd_N
            sd_N[design] = -1.0
            design.append(int(sd_N.argmax()))
        return design

    def _next(
        self, features: Features, known: Results, probed: Sequence[int], count: int
    ) -> list[int]:
        batch, imagined = list[int](), dict(known)
        for _ in range(count):
            now = self.expected(features, imagined)
            best = min(probed, key=lambda number: now.mean_N[number])
            hoped_N = now.mean_N - self.caution * now.sd_beside_N(best)
            hoped_N[[*probed, *batch]] = np.inf
            batch.append(int(hoped_N.argmin()))
            # As a training of its own: the common part of the probes is not known for it.
            imagined[Training(batch[-1], "full", -1)] = float(now.mean_N[batch[-1]])
        return batch

    def chance(self, now: Posterior, probed: Sequence[int]) -> float:
        """The largest chance that a network without a probe beats the best one by the margin."""
        best = min(probed, key=lambda number: now.mean_N[number])
        beside_N = (now.mean_N, now.sd_beside_N(best))
        mean_N, sd_N = (np.delete(value_N, probed) for value_N in beside_N)
        ahead_N = now.mean_N[best] - self.margin_nats - mean_N
        return NormalDist().cdf(float((ahead_N / np.maximum(sd_N, 1e-12)).max()))

    def expected(self, features: Features, known: Results) -> Posterior:
        """What is expected of every network; of what diverged, the worst of the others."""
        worst = max((nats for nats in known.values() if nats < np.inf), default=0.0)
        finite = {training: min(nats, worst) for training, nats in known.items()}
        return posterior(features, finite, self.deviations)


def _drawn(space: Space, probed: Sequence[int], count: int, seed: list[int]) -> list[int]:
    rest = np.setdiff1d(np.arange(len(space)), probed)
    return np.random.default_rng(seed).choice(rest, size=count, replace=False).tolist()


def rules_of_design(space: Space) -> list[int]:
    """Rules with few and with many attention blocks, a mirror, and what a search proposes.

    Attention first with the least, the most and two numbers of attention blocks between; with the
    middle number spread, early and dense first; every rule of further kinds.
    """
    first = "attention first "
    counts = sorted(int(n.removeprefix(first)) for n in space.rules if n.startswith(first))
    names = [name for name in space.rules if name.startswith(KIND_RULES)]
    if counts:
        last, middle = len(counts) - 1, counts[len(counts) // 2]
        places = [0, round(last / 3), round(2 * last / 3), last]
        names = [
            *(f"{first}{counts[place]}" for place in places),
            *(f"{rule} {middle}" for rule in ("spread", "early", "dense first")),
            *names,
        ]
    chosen = [space.rules[name] for name in names if name in space.rules]
    return list(dict.fromkeys([*chosen, *space.proposed[:_PROPOSED]]))


def finalists(space: Space, now: Posterior, count: int) -> list[int]:
    """The best networks, and the best rule."""
    order = now.mean_N.argsort(kind="stable").tolist()
    rules = sorted(set(space.rules.values()), key=lambda number: (now.mean_N[number], number))
    return list(dict.fromkeys([*order[:count], *rules[:1]]))


def best_of(
    space: Space,
    chosen: Sequence[int],
    now: Posterior,
    spread: Posterior,
    diverged: Collection[int],
) -> Answer:
    """The finalist of least expected nats; one of which a final diverged comes last.

    The standard deviation of its lead is that of `spread`.
    """
    first, *others = sorted(chosen, key=lambda n: (n in diverged, now.mean_N[n], n))
    ordered, rules = (first, *others), set(space.rules.values())
    rule = next((number for number in ordered if number in rules), None)
    lead = (0.0, 0.0)
    if rule is not None:
        sd_N = spread.sd_beside_N(rule)
        lead = float(now.mean_N[rule] - now.mean_N[first]), float(sd_N[first])
    return Answer(first, ordered, rule, lead)
