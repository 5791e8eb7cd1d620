"""What a regression sees of a network: how much of each kind of block it has, and where.

With f_k the blocks of kind k over the slots, and c_k the sum of the places of its blocks, each from
-1/2 (the network's first) to 1/2 (its last):

    share f_k, its square, absence [f_k = 0], products f_j f_k,
    centroid c_k, whether the first and the last block are of kind k

Shares add up to 1 where no slot may be empty, and centroids always add up to 0, so the last kind
is left out there: it is the reference.

N networks   L slots   P features
"""

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from nas.probing.base import NONE, Array, Kinds, Space


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
