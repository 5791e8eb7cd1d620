"""Latencies of models on the experiment's own text."""

from collections.abc import Mapping

import numpy as np
import torch

from assembly.workbench import Workbench, say
from model import LanguageModel
from nas.costs.latency import Latencies, measure_latency


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
