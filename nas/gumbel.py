"""Gumbel noise from its own generator, as a pure function of the seed and the draw's number."""

import numpy as np
import torch
from torch import Tensor

_STREAM = 0x70690001


def gumbel_noise(seed: int, draw: int, slots: int, candidates: int) -> Tensor:
    """Standard Gumbel noise, one row per slot, fair over every C draws.

    Draws come in blocks of as many as there are candidates. In each slot a block has one set of
    values, and from draw to draw they move on among the candidates, so that every candidate has
    each of them once: under uniform draws each is trained equally often (as in the strict fairness
    of FairNAS, Chu et al. 2019). The order is the values' own, which is random, so each draw by
    itself is that of independent Gumbel variates, and expectations over a draw stay as they are.

    Every block has a generator of its own, seeded by (seed, block): a resume, a recomputation or
    another rank sees the same noise without any state. The noise is -log of an exponential
    variate, which unlike -log(-log U) is never infinite for a variate above 0.

    Differs from the paper: the candidates of a block train one after the other, and not on one
    batch before a common update.

    Returns:
        noise_LC: float32, on the CPU.
    """
    block, turn = divmod(draw, candidates)
    generator = np.random.default_rng([_STREAM, seed, block])
    exponential_LC = generator.standard_exponential((slots, candidates))
    floor = np.finfo(np.float64).tiny
    noise_LC = -np.log(np.maximum(exponential_LC, floor))
    rank_LC = noise_LC.argsort(axis=1)
    turned_LC = np.empty_like(noise_LC)
    np.put_along_axis(
        turned_LC, np.roll(rank_LC, turn, axis=1), np.take_along_axis(noise_LC, rank_LC, 1), 1
    )
    return torch.from_numpy(turned_LC).float()
