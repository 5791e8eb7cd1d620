"""What layouts cost: FLOPs per token, and latencies of several measured in turn."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from model import Costs, LanguageModel
from nas.costs.latency import Latencies, measure_latency
from nas.derivation import Layout
from pipeline.context import Workbench, say


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


def time_models(bench: Workbench, models: Mapping[str, LanguageModel]) -> Latencies:
    """Time models in turn, at the segment and the streams that `compare` names."""
    say(f"measuring the latency of {len(models)} models in turn")
    compare = bench.experiment.compare
    batch, segment = compare.latency_batch, bench.experiment.data.segment
    tokens = np.resize(bench.prepared.tokens["valid"], batch * segment).astype(np.int64)
    return measure_latency(
        {name: model.to(bench.device) for name, model in models.items()},
        ids_BT=torch.from_numpy(tokens.reshape(batch, segment)),
        repeats=compare.latency_repeats,
        device=bench.device,
    )
