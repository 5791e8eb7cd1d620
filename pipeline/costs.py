"""What layouts of a run cost and may cost: the cost model of its experiment, text and machine."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch

from data.cache import default_cache, key_hash
from model import LanguageModel
from nas.costs.latency import Latencies, Shapes, measure_latency
from nas.costs.model import CostModel, counted
from pipeline.plan import RunPlan
from training.distributed import ALONE
from training.run_dir import machine, source_digest
from utils.screen import say

# What computes a pass; a table does not outlive a change there.
_TIMED_SOURCES = ("model", "nas/costs", "training", "pipeline/costs.py")
# Of the optimiser what a step has more work with where it is given and not 0.
_STEP_OPTIONS = ("momentum", "weight_decay", "clip_norm", "clip_each_norm", "clip_value")


def cost_model(plan: RunPlan) -> CostModel:
    """What layouts of the run cost, by its own text, shapes and device."""
    costs, key = plan.experiment.costs, table_key(plan)
    return CostModel(
        candidates=plan.candidates,
        slots=len(plan.slots),
        sizes=plan.sizes,
        dropout=plan.experiment.model.dropouts(),
        flops=plan.flops_of,
        shapes=shapes_of(plan),
        rounds=costs.repeats,
        patience_s=costs.patience_s,
        key=key,
        path=costs.table or default_cache() / "costs" / f"{key_hash(key)[:20]}.json",
        given=costs.table is not None,
    )


def shapes_of(plan: RunPlan) -> Shapes:
    """What is timed of the run's models: real text at the run's shapes."""
    data, batch = plan.experiment.data, plan.experiment.costs.batch

    def ids(streams: int) -> torch.Tensor:
        tokens = np.resize(plan.prepared.tokens["valid"], streams * data.segment)
        return torch.from_numpy(tokens.astype(np.int64).reshape(streams, data.segment))

    forward = replace(plan.forward, ranks=ALONE)
    return Shapes(ids(batch), ids(data.batch), forward, plan.experiment.retrain.optimiser)


def table_key(plan: RunPlan) -> dict[str, Any]:
    """All that the times of a run's layouts hold for."""
    experiment, forward = plan.experiment, plan.forward
    optimiser = experiment.retrain.optimiser
    return {
        **machine(plan.device),
        "batch": experiment.costs.batch,
        "repeats": experiment.costs.repeats,
        "train_batch": experiment.data.batch,
        "segment": experiment.data.segment,
        "slots": len(plan.slots),
        "candidates": [candidate.model_dump(mode="json") for candidate in plan.candidates],
        **{name: plan.sizes[name] for name in ("d_model", "tie_slots", "vocabulary_size")},
        "softmax": plan.softmax.model_dump(mode="json"),
        "options": plan.sizes["options"].changed(),
        "dropout": asdict(plan.experiment.model.dropouts()),
        "precision": forward.precision,
        "micro_batches": forward.micro_batches,
        "recompute": forward.recompute,
        **experiment.run.model_dump(include={"attention", "compile"}),
        "optimiser": [
            optimiser.kind,
            *(name for name in _STEP_OPTIONS if getattr(optimiser, name)),
        ],
        **plan.inputs(),
        "sources": source_digest(_TIMED_SOURCES),
    }


def time_models(
    plan: RunPlan, models: Mapping[str, LanguageModel], *, trained: bool = False
) -> Latencies:
    """Time the forward passes of models in turn; no figures where the machine is busy.

    Of `trained` models as they are; of others at the weights that costs are taken of.
    """
    costs = cost_model(plan)
    say(f"measuring the latency of {counted(len(models), 'model')} {costs.in_turn}")
    if not trained:
        models = {name: model.costliest() for name, model in models.items()}
    models = {name: model.to(plan.device) for name, model in models.items()}
    return measure_latency(models, costs.shapes, rounds=costs.rounds, patience_s=costs.patience_s)
