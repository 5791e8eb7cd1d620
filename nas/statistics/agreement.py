"""How far several searches agree: per slot, as Fleiss' kappa, and whether chance does as well.

R searches, L slots, C candidates, N permutations.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from model import Agreement
from nas.statistics.intervals import t95

_PERMUTATIONS = 4999
LEAST_SLOTS = 6
LEAST_OTHER = 3
# Below that every permutation gives the same kappa: each search chose one candidate everywhere.
_NONE = 1e-9

Choices = NDArray[np.int64]


def agreement(seeds: Sequence[int], choice_RL: Choices) -> Agreement:
    """Agreement of the searches' choices, the probability of it by chance, and an interval.

    Two searches give Scott's pi, which differs from Cohen's kappa in that it takes both to have
    one and the same share of each candidate.
    """
    counts_LC = _counts(choice_RL, int(choice_RL.max()) + 1)
    slots = tuple(round(float(alike), 6) for alike in pairs_alike(counts_LC))
    kappa = fleiss_kappa(counts_LC)
    if kappa is None:
        return Agreement(
            searches=tuple(seeds), blocks=slots, kappa=None, interval=None, p_by_chance=None
        )
    shuffled_N = shuffled(choice_RL, _PERMUTATIONS)
    spread, as_much = float(shuffled_N.std()), int((shuffled_N >= kappa - 1e-9).sum())
    return Agreement(
        searches=tuple(seeds),
        blocks=slots,
        kappa=round(kappa, 6),
        interval=None if spread < _NONE else interval(counts_LC, spread),
        # The searches' own order is one of the permutations, so that p is never 0.
        p_by_chance=round((1 + as_much) / (1 + _PERMUTATIONS), 6),
    )


def pairs_alike(counts_LC: Choices) -> NDArray[np.float64]:
    """Per slot the part of the pairs of searches that chose alike; from counts of choices."""
    searches = counts_LC[0].sum()
    pairs: NDArray[np.float64] = (counts_LC * (counts_LC - 1)).sum(axis=-1) / (
        searches * (searches - 1)
    )
    return pairs


def fleiss_kappa(counts_LC: Choices) -> float | None:
    """Fleiss' kappa (1971); None where all chose one candidate in every slot."""
    share_C = counts_LC.sum(axis=0) / counts_LC.sum()
    by_chance = float((share_C**2).sum())
    if by_chance >= 1.0:
        return None
    return float((pairs_alike(counts_LC).mean() - by_chance) / (1 - by_chance))


def interval(counts_LC: Choices, chance_spread: float) -> tuple[float, float] | None:
    """A 95% interval of kappa, or None where there is too little to make one of.

    Student's t with L - 1 degrees of freedom, of the jackknife's error over the slots widened by
    L / (L - 1), or the deviation of kappa by chance where that is larger: a jackknife of a few
    slots that agree by luck says far too little. Its coverage is in
    benchmarks/records/kappa_interval.md.

    `chance_spread` is the deviation of kappa where the searches have nothing in common.
    """
    slots, searches = len(counts_LC), counts_LC[0].sum()
    commonest = counts_LC.sum(axis=0).argmax()
    others = int((counts_LC[:, commonest] < searches).sum())
    kappa = fleiss_kappa(counts_LC)
    if slots < LEAST_SLOTS or others < LEAST_OTHER or kappa is None:
        return None
    without_L = [fleiss_kappa(np.delete(counts_LC, slot, axis=0)) for slot in range(slots)]
    left_L = np.array([kappa if left is None else left for left in without_L])
    error = math.sqrt(slots / (slots - 1) * ((left_L - left_L.mean()) ** 2).sum())
    half = t95(slots - 1) * max(error, chance_spread)
    return round(max(-1.0, kappa - half), 6), round(min(1.0, kappa + half), 6)


def shuffled(choice_RL: Choices, count: int) -> NDArray[np.float64]:
    """Kappa where each search puts its own choices into slots at random, so many times.

    The null hypothesis: every search keeps how often it takes each candidate, and where it takes
    them has nothing to do with the other searches.
    """
    searches, slots = choice_RL.shape
    candidates = int(choice_RL.max()) + 1
    share_C = _counts(choice_RL, candidates).sum(axis=0) / choice_RL.size
    by_chance = (share_C**2).sum()
    generator = np.random.default_rng(0)
    every_NRL = np.broadcast_to(choice_RL, (count, searches, slots))
    choice_NRL = generator.permuted(every_NRL, axis=-1)
    squares_NL = sum((choice_NRL == k).sum(axis=1) ** 2 for k in range(candidates))
    alike_N = (np.mean(squares_NL, axis=-1) - searches) / (searches * (searches - 1))
    kappa_N: NDArray[np.float64] = (alike_N - by_chance) / (1 - by_chance)
    return kappa_N


def _counts(choice_RL: Choices, candidates: int) -> Choices:
    counts: Choices = (choice_RL[:, :, None] == np.arange(candidates)).sum(axis=0)
    return counts
