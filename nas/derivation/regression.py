"""Bayesian linear regression of nats on features of networks, in closed form.

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
mean 0 and a stated standard deviation, so the posterior of a network's expected nats at full
length, m + x_n w + r_n, is Gaussian and known (Rasmussen and Williams 2006, Gaussian Processes for
Machine Learning, eq. 2.23 and 2.24, with the covariance that these terms give).

N networks   L slots   P features   O trainings that are known
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from nas.derivation.training import NONE, Array, Kinds, Space, Training


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
    share = {name: (space.kind_NL == k).mean(axis=1) for k, name in enumerate(space.kinds)}
    full = bool((space.kind_NL != NONE).all())
    counted = space.kinds[:-1] if full else space.kinds
    for name in counted:
        columns.append((f"share {name}", priors.share, share[name]))
        columns.append((f"square {name}", priors.square, share[name] ** 2))
    for name in space.kinds:
        columns.append((f"no {name}", priors.absence, (share[name] == 0).astype(float)))
    for one, other in combinations(counted, 2):
        columns.append((f"{one} x {other}", priors.product, share[one] * share[other]))
    place_NL = _places(space.kind_NL)
    first_N, last_N = _ends(space.kind_NL)
    for k, name in enumerate(space.kinds[:-1]):
        centroid_N = np.where(space.kind_NL == k, place_NL, 0.0).sum(axis=1)
        columns.append((f"centroid {name}", priors.centroid, centroid_N))
        columns.append((f"first {name}", priors.end, (first_N == k).astype(float)))
        columns.append((f"last {name}", priors.end, (last_N == k).astype(float)))
    return Features(
        names=tuple(name for name, _, _ in columns),
        prior_P=np.array([prior for _, prior, _ in columns]),
        value_NP=np.stack([value_N for _, _, value_N in columns], axis=1),
    )


def _places(kind_NL: Kinds) -> Array:
    blocks_N1 = (kind_NL != NONE).sum(axis=1, keepdims=True)
    return (np.arange(kind_NL.shape[1]) - (blocks_N1 - 1) / 2) / np.maximum(blocks_N1, 1)


def _ends(kind_NL: Kinds) -> tuple[Kinds, Kinds]:
    blocks_N = (kind_NL != NONE).sum(axis=1)
    return kind_NL[:, 0], kind_NL[np.arange(len(kind_NL)), np.maximum(blocks_N - 1, 0)]


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
