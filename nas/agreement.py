"""How far several searches agree: per slot, and as Fleiss' kappa.

R searches, L slots, C candidates.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from model import Agreement

_RESAMPLES = 10_000
_LEAST_SLOTS = 3


def agreement(seeds: Sequence[int], choice_RL: NDArray[np.int64]) -> Agreement:
    """Agreement of the searches' choices, with an interval by a bootstrap over the slots.

    Two searches give Scott's pi, which differs from Cohen's kappa in that it takes both to have
    one and the same share of each candidate.
    """
    counts_LC = (choice_RL[:, :, None] == np.arange(choice_RL.max() + 1)).sum(axis=0)
    alike_L = pairs_alike(counts_LC)
    kappa = fleiss_kappa(counts_LC)
    return Agreement(
        searches=tuple(seeds),
        slots=tuple(round(float(alike), 6) for alike in alike_L),
        kappa=None if kappa is None else round(kappa, 6),
        interval=None if kappa is None else _interval(counts_LC),
    )


def pairs_alike(counts_LC: NDArray[np.int64]) -> NDArray[np.float64]:
    """Per slot the part of the pairs of searches that chose alike.

    Args:
        counts_LC: how many searches chose each candidate.
    """
    searches = counts_LC[0].sum()
    pairs: NDArray[np.float64] = (counts_LC * (counts_LC - 1)).sum(axis=1) / (
        searches * (searches - 1)
    )
    return pairs


def fleiss_kappa(counts_LC: NDArray[np.int64]) -> float | None:
    """Fleiss' kappa (1971); None where all chose one candidate in every slot."""
    share_C = counts_LC.sum(axis=0) / counts_LC.sum()
    by_chance = float((share_C**2).sum())
    if by_chance >= 1.0:
        return None
    return float((pairs_alike(counts_LC).mean() - by_chance) / (1 - by_chance))


def _interval(counts_LC: NDArray[np.int64]) -> tuple[float, float] | None:
    """The middle 95% of kappa over resampled slots; resamples without a kappa are left out."""
    slots = len(counts_LC)
    if slots < _LEAST_SLOTS:
        return None
    rows_BL = np.random.default_rng(0).integers(slots, size=(_RESAMPLES, slots))
    share_BC = counts_LC[rows_BL].sum(axis=1) / counts_LC.sum()
    by_chance_B = (share_BC**2).sum(axis=1)
    alike_B = pairs_alike(counts_LC)[rows_BL].mean(axis=1)
    there_B = by_chance_B < 1.0
    kappa_B = (alike_B[there_B] - by_chance_B[there_B]) / (1 - by_chance_B[there_B])
    low, high = np.quantile(kappa_B, [0.025, 0.975])
    return round(float(low), 6), round(float(high), 6)
