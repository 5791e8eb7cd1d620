"""How well a perfect predictor could rank layouts that were trained a few times each.

S training seeds, N layouts, R resamples.
"""

import numpy as np
from numpy.typing import NDArray

from nas.kendall import kendall

Array = NDArray[np.float64]


def ceiling_tau(nats_SN: Array, resamples: int = 2000) -> float:
    """The tau-b that the layouts' true nats are expected to have with their mean over the seeds.

    The agreement of two trainings is less: there both sides are noisy. The noise of one training is
    pooled over layouts, with what a seed does to all layouts alike taken out; the variance that it
    gives the means is taken from theirs, and the layouts, drawn together by that much, stand for
    the truth to which noise is added. The same figures give the same tau.

    Args:
        nats_SN: nats by training seed and layout.
        resamples: how often noise is drawn.

    Returns:
        0 where the layouts differ by no more than noise.

    Raises:
        ValueError: fewer than two seeds or layouts.
    """
    seeds, layouts = nats_SN.shape
    if seeds < 2 or layouts < 2:
        raise ValueError(
            f"ceiling: {seeds} training seeds of {layouts} layouts; needs 2 or more of both"
        )
    mean_N = nats_SN.mean(axis=0)
    spread = float(mean_N.var(ddof=1))
    noise = _variance_of_one(nats_SN) / seeds
    if spread <= noise:
        return 0.0
    truth_N = mean_N.mean() + (mean_N - mean_N.mean()) * np.sqrt(1 - noise / spread)
    drawn_RN = np.random.default_rng(0).normal(size=(resamples, layouts)) * np.sqrt(noise)
    return float(np.mean([kendall(truth_N, truth_N + drawn_N) or 0.0 for drawn_N in drawn_RN]))


def _variance_of_one(nats_SN: Array) -> float:
    """Variance of one training's nats about its layout's, beside the seed's own shift."""
    seeds, layouts = nats_SN.shape
    rest_SN = nats_SN - nats_SN.mean(axis=0) - nats_SN.mean(axis=1, keepdims=True) + nats_SN.mean()
    return float((rest_SN**2).sum()) / ((seeds - 1) * (layouts - 1))
