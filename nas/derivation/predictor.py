"""The layout that short trainings and a regression on them find, judged by full ones.

Performance predictors as in BANANAS (White et al. 2021, arXiv 1910.11858), BRP-NAS (Dudziak et al.
2020, arXiv 2007.08668) and Composer (arXiv 2510.00379).

Differs from the papers: the predictor is a Bayesian linear regression; rules stand in the first
design and in the finals; the answer is judged by fresh trainings of full length, with the same
seeds for every finalist.

Features are how much of each kind of block a network has, and where. With f_k the blocks of kind k
over the slots, and c_k the sum of the places of its blocks, each from -1/2 (the network's first) to
1/2 (its last):

    share f_k, its square, absence [f_k = 0], products f_j f_k,
    centroid c_k, whether the first and the last block are of kind k

Shares add up to 1 where no slot may be empty, and centroids always add up to 0, so the last kind
is left out there: it is the reference. A training of network n with seed s, at full or at half
length, gives

    nats = m + x_n w + r_n + [half] (d + x_n v + q_n) + u + e

with x_n the features, r_n what they do not see of the network, d, v and q_n what half length gets
wrong, u what trainings of one seed and length have in common, and e noise. All are Gaussian with
mean 0 and a stated standard deviation, so the posterior of m + x_n w + r_n is known in closed form
(Rasmussen and Williams 2006, Gaussian Processes for Machine Learning, eq. 2.23 and 2.24).

N networks   L slots   P features   O trainings that are known
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from model import Layout
from nas.derivation.base import Derived, Request, derived_by
from nas.derivation.config import PROBES, PROBES_PER_KIND, TrainingsConfig
from nas.derivation.from_search import argmax, beam, top_k
from nas.derivation.rules import KIND_RULES
from nas.derivation.space import layout_space
from nas.derivation.training import (
    NONE,
    Answer,
    Array,
    Results,
    Space,
    Training,
    Trainings,
    training_noise,
)


@dataclass(frozen=True)
class Priors:
    """Standard deviations of the weights before anything is trained, in nats for a whole unit."""

    share: float = 0.3
    square: float = 0.5
    absence: float = 0.3
    product: float = 0.5
    centroid: float = 0.05
    end: float = 0.02


@dataclass(frozen=True)
class Features:
    """Names, prior standard deviations, and the values of every network."""

    names: tuple[str, ...]
    prior_P: Array
    value_NP: Array


def features_of(space: Space, priors: Priors) -> Features:
    """The features of a space's networks."""
    columns: list[tuple[str, float, Array]] = []
    kind_NL, slots = space.kind_NL, space.kind_NL.shape[1]
    blocks_N = (kind_NL != NONE).sum(axis=1)
    share = {name: (kind_NL == k).mean(axis=1) for k, name in enumerate(space.kinds)}
    full = bool((blocks_N == slots).all())
    counted = space.kinds[:-1] if full else space.kinds
    for name in counted:
        columns.append((f"share {name}", priors.share, share[name]))
        columns.append((f"square {name}", priors.square, share[name] ** 2))
    for name in space.kinds:
        columns.append((f"no {name}", priors.absence, (share[name] == 0).astype(float)))
    for one, other in combinations(counted, 2):
        columns.append((f"{one} x {other}", priors.product, share[one] * share[other]))
    center_N1, most_N1 = (blocks_N[:, None] - 1) / 2, np.maximum(blocks_N[:, None], 1)
    place_NL = (np.arange(slots) - center_N1) / most_N1
    first_N = kind_NL[:, 0]
    last_N = kind_NL[np.arange(len(space)), np.maximum(blocks_N - 1, 0)]
    for k, name in enumerate(space.kinds[:-1]):
        centroid_N = np.where(kind_NL == k, place_NL, 0.0).sum(axis=1)
        columns.append((f"centroid {name}", priors.centroid, centroid_N))
        columns.append((f"first {name}", priors.end, (first_N == k).astype(float)))
        columns.append((f"last {name}", priors.end, (last_N == k).astype(float)))
    return Features(
        names=tuple(name for name, _, _ in columns),
        prior_P=np.array([prior for _, prior, _ in columns]),
        value_NP=np.stack([value_N for _, _, value_N in columns], axis=1),
    )


@dataclass(frozen=True)
class Deviations:
    """Standard deviations of the terms, in nats; `offset` is v's as a part of w's."""

    mean: float = 1.0
    residual: float = 0.03
    half_mean: float = 1.0
    offset: float = 0.5
    half_residual: float = 0.01
    seed: float = 0.02
    noise_half: float = 0.012
    noise_full: float = 0.012


@dataclass(frozen=True)
class Posterior:
    """Mean of every network's expected nats at full length, and a root of their covariance.

    Covariances of networks n and k are `prior_NR[n] @ prior_NR[k]`, and `residual` squared where n
    is k, less `white_ON[:, n] @ white_ON[:, k]`.
    """

    mean_N: Array
    prior_NR: Array
    residual: float
    white_ON: Array

    @property
    def sd_N(self) -> Array:
        """Standard deviation of every network's expected nats."""
        prior_N = (self.prior_NR**2).sum(axis=1) + self.residual**2
        return _root(prior_N - (self.white_ON**2).sum(axis=0))

    def sd_beside_N(self, network: int) -> Array:
        """Standard deviation of what every network is above this one.

        What both have in common does not count, such as what half length gets wrong of both.
        """
        prior_NR = self.prior_NR - self.prior_NR[network]
        white_ON = self.white_ON - self.white_ON[:, [network]]
        residual_N = np.full(len(self.mean_N), 2 * self.residual**2)
        residual_N[network] = 0.0
        return _root((prior_NR**2).sum(axis=1) + residual_N - (white_ON**2).sum(axis=0))


def posterior(
    features: Features, known: Mapping[Training, float], deviations: Deviations
) -> Posterior:
    """The posterior after these trainings; nats count from their mean, without any from 0."""
    d, trainings = deviations, sorted(known)
    network_O = np.array([training.network for training in trainings], dtype=np.int64)
    half_O = np.array([training.length == "half" for training in trainings], dtype=bool)
    seed_O = np.array([training.seed for training in trainings], dtype=np.int64)
    stream_O = 2 * seed_O + half_O
    nats_O = np.array([known[training] for training in trainings])
    weighted_NP = features.value_NP * features.prior_P
    weighted_OP = weighted_NP[network_O]
    seen_OO = weighted_OP @ weighted_OP.T
    unseen_OO = _equal(network_O)
    cov_OO = d.mean**2 + seen_OO + d.residual**2 * unseen_OO
    of_half_OO = d.half_mean**2 + d.offset**2 * seen_OO + d.half_residual**2 * unseen_OO
    cov_OO += np.outer(half_O, half_O) * of_half_OO + d.seed**2 * _equal(stream_O)
    cov_OO += np.diag(np.where(half_O, d.noise_half, d.noise_full) ** 2)
    cov_NO = d.mean**2 + weighted_NP @ weighted_OP.T
    cov_NO[network_O, np.arange(len(network_O))] += d.residual**2
    root_OO = np.linalg.cholesky(cov_OO)
    white_ON = np.linalg.solve(root_OO, cov_NO.T)
    centre = nats_O.mean() if trainings else 0.0
    white_O = np.linalg.solve(root_OO, nats_O - centre)
    prior_NR = np.hstack([np.full((len(weighted_NP), 1), d.mean), weighted_NP])
    return Posterior(centre + white_O @ white_ON, prior_NR, d.residual, white_ON)


def _root(variance_N: Array) -> Array:
    # Rounding may leave less than nothing.
    return np.sqrt(np.maximum(variance_N, 0.0))


def _equal(value_O: NDArray[np.int64]) -> Array:
    return (value_O[:, None] == value_O).astype(float)


PROBE_SEED = 0
# Proposals of a search that are probed.
_PROPOSED = 2
# Where rules and proposals are fewer, others make up for them.
_LEAST_DESIGN = 4
_DESIGN = ("spread", "early", "after dense", "last")
_DEFAULT = TrainingsConfig()


@dataclass(frozen=True)
class Predictor:
    """The method on the networks of a space.

    Attributes:
        cap: probes in all, the first design included.
        at_once: probes that are chosen together, each as if those before it gave what is expected.
        margin_nats: by how much an untrained network must be better to be worth a probe.
        least_chance: with less chance than this of such a network there are no more probes.
        caution: by how many standard deviations of its lead over the best probe a network is hoped
            to be better than expected.
    """

    cap: int = PROBES
    at_once: int = 2
    margin_nats: float = 0.01
    least_chance: float = 0.1
    finalists: int = _DEFAULT.best
    final_seeds: tuple[int, ...] = _DEFAULT.full_seeds
    caution: float = 1.0
    priors: Priors = field(default_factory=Priors)
    deviations: Deviations = field(default_factory=Deviations)

    def __call__(self, space: Space, train: Trainings) -> Answer:
        """See `Method`."""
        features, probed = features_of(space, self.priors), list[int]()
        finals = min(self.finalists + 1, len(space)) * len(self.final_seeds)
        words = "predictor: short trainings, then the best layouts and the best hand-written one"
        train.foresee(words, min(self.cap, len(space)), finals)
        for batch in self.batches(space, features, train.results, probed):
            numbers = f"{len(probed) + 1} to {len(probed) + len(batch)} of at most {self.cap}"
            train.say(f"predictor: short trainings {numbers}; {len(space):,} layouts are possible")
            train(batch, "half", [PROBE_SEED])
            probed += batch
        known = {one: nats for one, nats in train.results.items() if one.length == "half"}
        mean_N = self.expected(features, known).mean_N
        rules = sorted(space.rule_of, key=lambda number: (mean_N[number], number))
        best = mean_N.argsort(kind="stable").tolist()[: self.finalists]
        chosen = list(dict.fromkeys([*best, *rules[:1]]))
        words = f"predictor: {len(probed)} short ones done; now the best and the best hand-written"
        train.foresee(words, 0, len(chosen) * len(self.final_seeds))
        train(chosen, "full", self.final_seeds)
        results = train.results
        diverged = {
            one.network for one, nats in results.items() if one.length == "full" and nats == np.inf
        }
        # The regression's noise is that of other trainings; these may lie further apart, which
        # makes the lead less sure. It does not choose otherwise.
        noise = training_noise(chosen, self.final_seeds, results, self.deviations.noise_full)
        as_noisy = replace(self, deviations=replace(self.deviations, noise_full=noise))
        now, spread = (one.expected(features, results) for one in (self, as_noisy))
        # Of which a final diverged comes last.
        order = sorted(chosen, key=lambda n: (n in diverged, now.mean_N[n], n))
        rule = next((number for number in order if number in space.rule_of), None)
        lead = (0.0, 0.0)
        if rule is not None:
            sd_N = spread.sd_beside_N(rule)
            lead = float(now.mean_N[rule] - now.mean_N[order[0]]), float(sd_N[order[0]])
        return Answer(order[0], tuple(order), rule, lead)

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
    middle number spread, early or after dense, and last; every rule of further kinds.
    """
    first = "attention blocks first: "
    counts = sorted(int(n.removeprefix(first)) for n in space.rules if n.startswith(first))
    names = [name for name in space.rules if name.startswith(KIND_RULES)]
    if counts:
        last, middle = len(counts) - 1, counts[len(counts) // 2]
        places = [0, round(last / 3), round(2 * last / 3), last]
        names = [
            *(f"{first}{counts[place]}" for place in places),
            *(f"attention blocks {rule}: {middle}" for rule in _DESIGN),
            *names,
        ]
    chosen = [space.rules[name] for name in names if name in space.rules]
    return list(dict.fromkeys([*chosen, *space.proposed[:_PROPOSED]]))


def predictor(request: Request) -> Derived:
    """Train a few layouts shortly, choose what to train next by a regression, judge the best.

    All networks within the limits are candidates; where a search was made, what it chooses is
    probed too. Trainings that are there already are not made again.
    """
    config, space = request.config.trainings, layout_space(request, _proposals(request))
    first = {one.kind: one.label for one in reversed(request.candidates)}
    further = set(space.kinds) - {first.get("attention"), first.get("dense")}
    most = PROBES + PROBES_PER_KIND * len(further) if config.half == "auto" else config.half
    method = Predictor(cap=most, finalists=config.best, final_seeds=config.full_seeds)
    train = request.trainings(space)
    answer = method(space, train)
    probes = {one: nats for one, nats in train.results.items() if one.length == "half"}
    features = features_of(space, method.priors)
    now, before = (method.expected(features, known) for known in (train.results, probes))
    means, sds, foreseen = now.mean_N.tolist(), now.sd_N.tolist(), before.mean_N.tolist()
    beside = now.sd_beside_N(answer.network).tolist()
    words = (
        f"predictor: the best of {len(space):,} layouts by {len(probes)} trainings of half and "
        f"{len(train.results) - len(probes)} of full length"
    )
    expected = dict(enumerate(zip(means, sds, strict=True)))
    fronts = dict(enumerate(zip(means, beside, strict=True)))
    return derived_by(space, train.results, answer, words, expected, fronts, foreseen)


def _proposals(request: Request) -> list[Layout]:
    """What a search chooses within the limits, where one was made."""
    if not request.trajectories:
        return []
    methods = (argmax, top_k) if request.alpha_learned else (beam,)
    return [method(request).layout for method in methods]
