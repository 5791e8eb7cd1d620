"""The layout that short trainings and a regression on them find, judged by full ones.

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

from model import Evidence, Layout
from nas.derivation.base import Derived, Request
from nas.derivation.config import PROBES, PROBES_PER_KIND, ProbesConfig
from nas.derivation.from_search import argmax, beam, top_k
from nas.derivation.regression import (
    Deviations,
    Features,
    Posterior,
    Priors,
    features_of,
    posterior,
)
from nas.derivation.rules import KIND_RULES
from nas.derivation.space import layout_space
from nas.derivation.training import (
    Answer,
    Results,
    Space,
    Training,
    Trainings,
    beside_the_best_rule,
    pareto_front,
    trained_rows,
    training_noise,
)

PROBE_SEED = 0
# Proposals of a search that are probed.
_PROPOSED = 2
# Where rules and proposals are fewer, others make up for them.
_LEAST_DESIGN = 4
_DEFAULT = ProbesConfig()


@dataclass(frozen=True)
class Predictor:
    """The method on the networks of a space.

    Attributes:
        cap: probes in all, the first design included.
        at_once: probes that are chosen together, each as if those before it gave what is expected.
        margin_nats: by how much an untrained network must be better to be worth a probe.
        least_chance: with less chance than this of such a network there are no more probes.
        finalists: how many are trained at full length; the best rule comes on top.
        final_seeds: of those trainings; none is the probes'.
        caution: by how many standard deviations of its lead over the best probe a network is hoped
            to be better than expected.
    """

    cap: int = PROBES
    at_once: int = 2
    margin_nats: float = _DEFAULT.margin_nats
    least_chance: float = _DEFAULT.least_chance
    finalists: int = _DEFAULT.finalists
    final_seeds: tuple[int, ...] = _DEFAULT.seeds
    caution: float = 1.0
    priors: Priors = field(default_factory=Priors)
    deviations: Deviations = field(default_factory=Deviations)

    def __call__(self, space: Space, train: Trainings) -> Answer:
        """See `Method`."""
        features, probed = features_of(space, self.priors), list[int]()
        for batch in self.batches(space, features, train.results, probed):
            if space.layouts:  # a table of trainings has none
                train.say(self._progress(space, features, train.results, batch))
            train(batch, "half", [PROBE_SEED])
            probed += batch
        known = {one: nats for one, nats in train.results.items() if one.length == "half"}
        chosen = finalists(space, self.expected(features, known), self.finalists)
        train.say(f"predictor: {len(probed)} probes done; finals: {len(chosen)} at full length")
        train(chosen, "full", self.final_seeds)
        results = train.results
        finals = {one: nats for one, nats in results.items() if one.length == "full"}
        diverged = {one.network for one, nats in finals.items() if nats == np.inf}
        # The regression's noise is that of other trainings; these may lie further apart, which
        # makes the lead less sure. It does not choose otherwise.
        noise = training_noise(chosen, self.final_seeds, results, self.deviations.noise_full)
        as_noisy = replace(self, deviations=replace(self.deviations, noise_full=noise))
        now, spread = (one.expected(features, results) for one in (self, as_noisy))
        return best_of(space, chosen, now, spread, diverged)

    def batches(
        self, space: Space, features: Features, known: Results, probed: Sequence[int]
    ) -> Iterator[list[int]]:
        """The first design, then pairs by what is known by then, until enough is."""
        most = min(self.cap, len(space))
        yield self.first_design(space, features)[:most]
        while len(probed) < most:
            if self.chance(self.expected(features, known), probed) < self.least_chance:
                return
            yield self._next(features, known, probed, min(self.at_once, most - len(probed)))

    def _progress(
        self, space: Space, features: Features, known: Results, batch: Sequence[int]
    ) -> str:
        """What is known so far, and what is trained now."""
        probes = len(known)
        begin = f"predictor: probes {probes + 1} to {probes + len(batch)} of at most {self.cap}"
        if not probes:
            return f"{begin}, the first design, of {len(space):,} networks"
        probed, now = [one.network for one in known], self.expected(features, known)
        best = min(probed, key=lambda number: now.mean_N[number])
        return (
            f"{begin}; best so far {space.letters(best)}; largest chance of another one that is "
            f"better by {self.margin_nats:g} nats: {self.chance(now, probed):.0%}"
        )

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


def predictor(request: Request) -> Derived:
    """Train a few layouts shortly, choose what to train next by a regression, judge the best.

    All networks within the limits are candidates; where a search was made, what it chooses is
    probed too. Trainings that are there already are not made again.

    Raises:
        NoLayout: no network keeps the limits.
    """
    config, space = request.config.probes, layout_space(request, _proposals(request))
    first = {one.kind: one.label for one in reversed(request.candidates)}
    further = set(space.kinds) - {first.get("attention"), first.get("dense")}
    most = PROBES + PROBES_PER_KIND * len(further) if config.most == "auto" else config.most
    method = Predictor(
        cap=most,
        margin_nats=config.margin_nats,
        least_chance=config.least_chance,
        finalists=config.finalists,
        final_seeds=config.seeds,
    )
    train = request.trainings(space)
    answer = method(space, train)
    probes = {one: nats for one, nats in train.results.items() if one.length == "half"}
    features = features_of(space, method.priors)
    now, before = (method.expected(features, known) for known in (train.results, probes))
    means, sds, foreseen = now.mean_N.tolist(), now.sd_N.tolist(), before.mean_N.tolist()
    beside = now.sd_beside_N(answer.network).tolist()
    words = (
        f"predictor: best of {len(space):,} networks by {len(probes)} trainings of half and "
        f"{len(train.results) - len(probes)} of full length; {beside_the_best_rule(space, answer)}"
    )
    ranked = tuple(space.layouts[number] for number in answer.finalists)
    return Derived(
        layout=ranked[0],
        evidence=Evidence(method=words),
        ranked=ranked,
        trained=trained_rows(
            space,
            train.results,
            answer,
            dict(enumerate(zip(means, sds, strict=True))),
            dict(enumerate(foreseen)),
        ),
        front=pareto_front(space, zip(range(len(space)), means, beside, strict=True)),
    )


def _proposals(request: Request) -> list[Layout]:
    """What a search chooses within the limits, where one was made."""
    if not request.trajectories:
        return []
    methods = (argmax, top_k) if request.alpha_learned else (beam,)
    return [method(request).layout for method in methods]
