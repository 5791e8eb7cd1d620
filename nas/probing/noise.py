"""How far trainings of one network lie apart, estimated from those that a method repeated."""

import math
from collections.abc import Sequence

import numpy as np

from nas.probing.base import Results, Training


def training_noise(
    networks: Sequence[int], seeds: Sequence[int], results: Results, least: float
) -> float:
    """Standard deviation of one full training in nats; never below `least`.

    Of the networks that have every seed: what is left of their nats without each network's mean
    and each seed's. Below `least` an estimate from a few trainings would be luck.
    """
    nats_NS = np.array(
        [[results[Training(number, "full", seed)] for seed in seeds] for number in networks]
    )
    nats_NS = nats_NS[np.isfinite(nats_NS).all(axis=1)]
    freedom = (len(nats_NS) - 1) * (len(seeds) - 1)
    if freedom < 1:
        return least
    left_NS = nats_NS - nats_NS.mean(axis=1, keepdims=True)
    left_NS -= left_NS.mean(axis=0)
    return max(least, math.sqrt(float((left_NS**2).sum()) / freedom))
