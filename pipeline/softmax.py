"""The softmax in numbers: its cutoffs, and how much of the text each of its clusters has.

V vocabulary
"""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from data import DataConfig, Prepared
from model import ModelConfig, SoftmaxConfig, optimal_cutoffs


def cluster_mass(counts_V: NDArray[np.int64], cutoffs: tuple[int, ...]) -> tuple[float, ...]:
    """Part of the training tokens in the head and in each tail."""
    bounds = (0, *cutoffs, len(counts_V))
    total = int(counts_V.sum())
    return tuple(int(counts_V[low:high].sum()) / total for low, high in pairwise(bounds))


def softmax_of(config: ModelConfig, data: DataConfig, prepared: Prepared) -> SoftmaxConfig:
    """The softmax with its cutoffs in numbers, also where the experiment says auto.

    Raises:
        ValueError: the vocabulary is too small for so many clusters.
    """
    if isinstance(config.softmax, SoftmaxConfig):
        return config.softmax
    try:
        cutoffs = optimal_cutoffs(
            prepared.counts_V,
            d_model=config.d_model,
            widths=config.softmax.tail_widths(config.d_embedding or config.d_model),
            head_width=config.d_embedding,
            tokens=data.batch * data.segment,
            least_head_mass=config.softmax.head_mass,
        )
    except ValueError as error:
        raise ValueError(f"model.softmax.cutoffs: auto: {error}") from None
    return config.softmax.fixed(cutoffs)
