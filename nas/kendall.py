"""Kendall's tau-b: how far two rankings of the same things agree.

N things, B weightings of them.
"""

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def kendall(one_N: Array, other_N: Array) -> float | None:
    """Kendall's tau-b (1945); None where one of the two ties every pair."""
    value = float(weighted_taus(one_N, other_N, np.ones((1, len(one_N))))[0])
    return None if math.isnan(value) else value


def weighted_taus(one_N: Array, other_N: Array, weight_BN: Array) -> Array:
    """tau-b where each thing counts as often as its weight says; nan where it is undefined.

    With how often each thing was drawn for weights this is the tau-b of a resample: two copies of
    one thing are a tie on both sides, which tau-b leaves out.
    """
    one_NN = np.sign(one_N[:, None] - one_N)
    other_NN = np.sign(other_N[:, None] - other_N)

    def total(of_NN: Array) -> Array:
        return ((weight_BN @ of_NN) * weight_BN).sum(axis=1)

    untied_B = np.sqrt(total(np.abs(one_NN)) * total(np.abs(other_NN)))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(untied_B > 0, total(one_NN * other_NN) / untied_B, np.nan)
