"""Differences of arms that were trained with more or fewer seeds, and p values of several at once.

P parameters   R trainings
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Fit:
    """Least squares of arms and seeds: means, their covariance per variance, the residuals' sd."""

    places: Mapping[str, int]
    mean_P: Array
    covariance_PP: Array
    deviation_nats: float
    freedom: int

    def difference(self, arm: str, against: Sequence[str]) -> tuple[float, float, float]:
        """An arm less the mean of others: mean, half-width of its 95% interval, p (two-sided)."""
        contrast_P = np.zeros(len(self.mean_P))
        contrast_P[self.places[arm]] += 1.0
        for other in against:
            contrast_P[self.places[other]] -= 1.0 / len(against)
        mean = float(contrast_P @ self.mean_P)
        error = self.deviation_nats * math.sqrt(contrast_P @ self.covariance_PP @ contrast_P)
        student = stats.t(self.freedom)
        return mean, float(student.ppf(0.975)) * error, float(2 * student.sf(abs(mean) / error))


def fitted(nats: Mapping[str, Mapping[int, float]]) -> Fit:
    """A mean for every arm and an effect for every seed but the first."""
    names = list(nats)
    seeds = sorted({seed for of in nats.values() for seed in of})
    trainings = [(name, seed) for name in names for seed in nats[name]]
    design_RP = np.zeros((len(trainings), len(names) + len(seeds) - 1))
    for number, (name, seed) in enumerate(trainings):
        design_RP[number, names.index(name)] = 1.0
        if at := seeds.index(seed):
            design_RP[number, len(names) + at - 1] = 1.0
    nats_R = np.array([nats[name][seed] for name, seed in trainings])
    inverse_PP = np.linalg.inv(design_RP.T @ design_RP)
    mean_P = inverse_PP @ design_RP.T @ nats_R
    freedom = len(trainings) - design_RP.shape[1]
    squares = float(((nats_R - design_RP @ mean_P) ** 2).sum())
    places = {name: number for number, name in enumerate(names)}
    return Fit(places, mean_P, inverse_PP, math.sqrt(squares / freedom), freedom)


def holm(values: Sequence[float]) -> list[float]:
    """Adjusted p values, in the order of the values (Holm 1979)."""
    adjusted, least = [0.0] * len(values), 0.0
    for rank, number in enumerate(np.argsort(values, kind="stable").tolist()):
        least = max(least, min(1.0, (len(values) - rank) * values[number]))
        adjusted[number] = least
    return adjusted
