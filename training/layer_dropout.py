"""A training step that leaves out slots at random.

L slots that add something
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from model import LanguageModel, Mix
from training.state import Batch, Metrics, TrainState
from training.step import WeightStep

# The first number of the generator's key, so that nothing else draws from the same.
_STREAM = 0x70690003


def uniform_numbers(seed: int, step: int, count: int) -> NDArray[np.float64]:
    """Numbers from [0, 1) that (seed, step) decide: a resume and every process draw the same."""
    return np.random.default_rng([_STREAM, seed, step]).random(count)


@dataclass(frozen=True)
class LayerDropoutStep:
    """Each slot is left out of a step with probability `rate`; the others' deltas grow.

    Stochastic depth (Huang et al. 2016, arXiv 1603.09382); LayerDrop (Fan et al. 2019, arXiv
    1909.11556) with its rate for every slot. A delta that is kept is divided by 1 - rate, as in
    dropout, so that evaluation takes every slot as it is. A slot that is left out remembers its
    inputs; a state that its block carries is lost, as in a search.

    Differs from the papers: they scale in the evaluation, or not at all.
    """

    weight_step: WeightStep
    rate: float
    seed: int
    draw: Callable[[int, int, int], NDArray[np.float64]] = uniform_numbers

    def __call__(self, state: TrainState, batch: Batch) -> Metrics:
        """Train the weights of the slots that are kept."""
        return self.weight_step(state, batch, lambda: self.mix(state.model, state.step))

    def mix(self, model: LanguageModel, step: int) -> Mix:
        """What is computed in a step of a model with one candidate in every slot.

        Numbers are drawn for slots that add something alone: layouts of one network train alike.
        """
        adding = [slot for slot, adds in enumerate(model.slots_that_add) if adds]
        number_L = self.draw(self.seed, step, len(adding))
        left_out = {
            slot for slot, number in zip(adding, number_L, strict=True) if number < self.rate
        }
        weight = torch.full((), 1.0 / (1.0 - self.rate), device=model.tables.head.device)
        return [
            [] if slot in left_out else [(only, weight)]
            for slot, (only,) in enumerate(model.tied.own)
        ]
