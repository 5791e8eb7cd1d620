"""What a model costs in FLOPs at the experiment's batch and text."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from assembly.workbench import Workbench
from model import Costs, LanguageModel
from nas.derivation import Layout


def costs(bench: Workbench, model: LanguageModel) -> Costs:
    """Forward FLOPs per token at the experiment's batch and segment."""
    data = bench.experiment.data
    mass = cluster_mass(bench.prepared.counts_V, model.softmax.bounds[:-1])
    return model.flops_per_token(data.batch, data.segment, mass)


@dataclass(frozen=True)
class LayoutCosts:
    """Costs of layouts by adding up one table of candidates, without building a model each."""

    by_label: Mapping[str, float]
    rest: float

    def __call__(self, layout: Layout) -> float:
        """Forward FLOPs per token of a layout."""
        return self.rest + sum(self.by_label[candidate.label] for candidate in layout)


def layout_costs(bench: Workbench) -> LayoutCosts:
    """The table of forward FLOPs per token; all slots are alike."""
    config = bench.experiment.model
    with torch.device("meta"):
        model = LanguageModel(
            [config.completed_candidates()],
            d_model=config.d_model,
            vocabulary_size=bench.prepared.tokenizer.vocabulary_size,
            softmax=bench.softmax,
            dropout=config.dropouts(),
        )
    table = costs(bench, model)
    return LayoutCosts(by_label=table.slots[0], rest=table.embedding + table.softmax)


def cluster_mass(counts_V: NDArray[np.int64], cutoffs: tuple[int, ...]) -> tuple[float, ...]:
    """Part of the training tokens in the head and in each tail."""
    bounds = (0, *cutoffs, len(counts_V))
    total = int(counts_V.sum())
    return tuple(int(counts_V[low:high].sum()) / total for low, high in pairwise(bounds))
