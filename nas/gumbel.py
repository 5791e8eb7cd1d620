"""Gumbel noise from its own generator, as a pure function of the seed and the draw's number."""

import numpy as np
import torch
from torch import Tensor

_STREAM = 0x70690001


def gumbel_noise(seed: int, draw: int, slots: int, candidates: int) -> Tensor:
    """Standard Gumbel noise, one row per slot.

    Every draw has a generator of its own, seeded by (seed, draw): a resume, a recomputation or
    another rank sees the same noise without any state. The noise is -log of an exponential
    variate, which unlike -log(-log U) is never infinite for a variate above 0.

    Returns:
        noise_LC: float32, on the CPU.
    """
    generator = np.random.default_rng([_STREAM, seed, draw])
    exponential_LC = generator.standard_exponential((slots, candidates))
    floor = np.finfo(np.float64).tiny
    return torch.from_numpy(-np.log(np.maximum(exponential_LC, floor))).float()
