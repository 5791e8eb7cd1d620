"""What layouts of a run cost and may cost: counted, or timed on this machine and cached."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from data.cache import cache_errors, default_cache, key_hash
from model import BLOCKS, Candidate, LanguageModel, Layout, SoftmaxConfig, TimedCost, layout_letters
from nas.costs.budget import ROUNDING, Amount, Budget, LayoutCost
from nas.costs.latency import Latencies, measure_latency, unchecked
from nas.costs.table import (
    CostTable,
    Measurement,
    WorkloadTimes,
    read_table,
    spread_layouts,
    write_table,
)
from nas.costs.workloads import WORKLOADS, Shapes
from pipeline.plan import RunPlan
from pipeline.summary import parameter_count
from training.distributed import ALONE
from training.run_dir import machine, source_digest
from utils.screen import say

# Whole layouts, beside the reference, that the correction of a table is fitted to.
_FITTED, _FITTED_SEED, _HELD_OUT_SEED = 9, 0, 1
# A name that no layout has.
REFERENCE = "the reference"
# What computes a pass; a table does not outlive a change there.
_TIMED_SOURCES = ("model", "nas/costs", "training", "pipeline/costs.py")
# Of the optimiser what a step has more work with where it is given and not 0.
_STEP_OPTIONS = ("momentum", "weight_decay", "clip_norm", "clip_each_norm", "clip_value")
_MEASURE_HERE = (
    "measure here (tools.latency --out FILE), and give that table or leave costs.table out"
)


def shapes_of(plan: RunPlan) -> Shapes:
    """What is timed of the run's models: real text at the run's shapes."""
    data, batch = plan.experiment.data, plan.experiment.costs.batch

    def ids(streams: int) -> torch.Tensor:
        tokens = np.resize(plan.prepared.tokens["valid"], streams * data.segment)
        return torch.from_numpy(tokens.astype(np.int64).reshape(streams, data.segment))

    forward = replace(plan.forward, ranks=ALONE)
    return Shapes(ids(batch), ids(data.batch), forward, plan.experiment.retrain.optimiser)


def measurement_of(plan: RunPlan) -> Measurement:
    """How layouts of the run are timed."""

    def build(layout: Layout) -> LanguageModel:
        return plan.network([[candidate] for candidate in layout]).costliest().to(plan.device)

    costs = plan.experiment.costs
    return Measurement(
        plan.candidates, len(plan.slots), build, shapes_of(plan), costs.repeats, costs.patience_s
    )


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
        "dropout": asdict(plan.dropout),
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


def timed_table(plan: RunPlan, workloads: Sequence[str]) -> CostTable:
    """The run's table with these workloads; what the cache lacks is measured now and kept.

    Raises:
        ValueError: costs.table is of another machine or shape, damaged, or lacks a workload; or
            the machine is busy.
        OSError: the cache cannot be written.
    """
    key, given = table_key(plan), plan.experiment.costs.table
    if given is None:
        table = _measured_table(plan, key, workloads)
    else:
        table = read_table(given, key, _MEASURE_HERE)
        if missing := [name for name in workloads if name not in table.workloads]:
            raise ValueError(f"{given}: has no {', '.join(missing)}; measure it (tools.latency)")
    for name in workloads:
        if (words := table.workloads[name].distrust) is not None:
            say(f"warning: {name}: {words}")
    return table


def _measured_table(plan: RunPlan, key: dict[str, Any], workloads: Sequence[str]) -> CostTable:
    table = cached_table(key)
    for name in workloads:
        if name not in table.workloads:
            table = table.with_workload(name, measure_workload(plan, name))
            keep_table(table)
    return table


def table_path(key: dict[str, Any]) -> Path:
    """Path of a key's table in the cache."""
    return default_cache() / "costs" / f"{key_hash(key)[:20]}.json"


def cached_table(key: dict[str, Any]) -> CostTable:
    """The table of a key in the cache; an empty one where there is none."""
    path = table_path(key)
    return read_table(path, key) if path.is_file() else CostTable(key=key, workloads={})


def keep_table(table: CostTable) -> None:
    """Write a table to the cache."""
    with cache_errors(default_cache()):
        write_table(table_path(table.key), table)


def measure_workload(plan: RunPlan, workload: str, held_out: int = 0) -> WorkloadTimes:
    """Time one workload anew, and so many more layouts that the fit does not see.

    Raises:
        Busy: other processes used the machine for as long as was waited.
    """
    whole = f"of every candidate and of whole layouts, in turn{unchecked(plan.device)}"
    say(f"measuring {workload} {whole}")
    fitted, other = (
        spread_layouts(plan.candidates, len(plan.slots), count, seed)
        for count, seed in ((_FITTED, _FITTED_SEED), (held_out, _HELD_OUT_SEED))
    )
    return measurement_of(plan).table(workload, fitted, other)


def counted_cost(
    plan: RunPlan, name: str, candidates: Sequence[Candidate] | None = None
) -> LayoutCost:
    """Parameters, FLOPs per token, or the bytes of state that a stream keeps: exact.

    Of the experiment's candidates, or of others of the same network.
    """
    if name == "flops" and candidates is None:
        return plan.costs
    candidates = plan.candidates if candidates is None else candidates
    labels = [candidate.label for candidate in candidates]
    if name == "cache":
        return LayoutCost(name, dict(zip(labels, state_bytes(candidates, plan), strict=True)))
    with torch.device("meta"):
        model = plan.network([candidates])
    if name == "flops":
        return plan.flops_of(model)
    (slot,) = model.slots
    by_label = {
        label: float(sum(parameter_count(part) for part in slot.parts(label))) for label in labels
    }
    rest = parameter_count(model) - sum(by_label.values())
    return LayoutCost(name, by_label, rest, plan.sizes["tie_slots"])


def state_bytes(candidates: Sequence[Candidate], plan: RunPlan) -> list[float]:
    """What each candidate keeps at most of a stream that is read token by token, memory full."""
    # The state does not depend on the vocabulary.
    model = LanguageModel(
        [candidates],
        d_model=plan.sizes["d_model"],
        vocabulary_size=2,
        softmax=SoftmaxConfig(cutoffs=()),
        options=plan.sizes["options"].model_copy(update={"d_embedding": None}),
    )
    model.costliest().eval()
    with torch.inference_mode():
        ids_BT = torch.zeros(1, 1, dtype=torch.int64)
        mix = [[(k, None) for k in range(len(candidates))]]
        _, state, _ = model(ids_BT, model.initial_state(1, cached=True), mix)
    (states,), (memory,) = state.blocks, state.memory
    # The row that token_shift remembers.
    row = 0 if memory is None else memory.nbytes
    return [
        float((0 if one is None else one.nbytes) + row * (not BLOCKS[candidate.kind].adds_nothing))
        for candidate, one in zip(candidates, states, strict=True)
    ]


def costs_of(plan: RunPlan, names: Sequence[str]) -> dict[str, LayoutCost]:
    """Costs by name; times from the table, as `timed_table` has them."""
    timed = [name for name in names if name in WORKLOADS]
    table = timed_table(plan, timed) if timed else None
    return {
        name: table.workloads[name].cost(name)
        if table is not None and name in WORKLOADS
        else counted_cost(plan, name)
        for name in names
    }


def budget_of(
    plan: RunPlan,
    amounts: Mapping[str, Amount],
    reference: Layout,
    reference_name: str,
    *,
    filled: bool,
) -> Budget:
    """What layouts may cost; refused where no layout keeps a limit, or all do and none is filled.

    Raises:
        ValueError: so, or times are needed and not to be had (`timed_table`).
    """
    data = plan.experiment.data
    costs = costs_of(plan, list(amounts))
    budget = Budget(amounts, costs, reference, reference_name, data.batch * data.segment)
    budget.check(plan.candidates, len(plan.slots), filled=filled)
    return budget


def counted_share(plan: RunPlan, budget: Budget, layout: Layout) -> dict[str, float]:
    """What a layout of any candidates costs by what is counted, as parts of the limits."""
    candidates = list({slot.label: slot for slot in layout}.values())
    return {
        limit.cost.name: counted_cost(plan, limit.cost.name, candidates)(layout) / limit.most
        for limit in budget.limits()
        if limit.cost.name not in WORKLOADS
    }


@dataclass(frozen=True)
class Measured:
    """Times of whole layouts beside the reference, all taken in one run."""

    budget: Budget
    times_ms: Mapping[str, Mapping[str, float]]
    keys: Mapping[str, Mapping[str, str | int]]

    def share(self, layout: Layout) -> dict[str, float]:
        """By workload what a layout takes, as a part of its limit."""
        letters = layout_letters(layout)
        return {
            name: times[letters] / self.budget.most(name, times[REFERENCE])
            for name, times in self.times_ms.items()
        }

    def costs(self, layout: Layout) -> tuple[TimedCost, ...]:
        """What a layout took, beside the reference and the limit."""
        letters, timed = layout_letters(layout), list[TimedCost]()
        for name, times in self.times_ms.items():
            most = self.budget.most(name, times[REFERENCE])
            timed.append(
                TimedCost(
                    name=name,
                    ms=round(times[letters], 4),
                    most_ms=round(most, 4),
                    reference=layout_letters(self.budget.reference),
                    reference_ms=round(times[REFERENCE], 4),
                    key={key: str(value) for key, value in self.keys[name].items()},
                )
            )
        return tuple(timed)


def over(share: Mapping[str, float]) -> dict[str, float]:
    """Of parts of limits those that are more than the limit."""
    return {name: part for name, part in share.items() if part > 1.0 + ROUNDING}


def over_text(over: Mapping[str, float]) -> str:
    """By how much a layout is over its limits, e.g. `latency by 3.0%`.

    Of throughput, whose part is that of the time of a pass, by how much it falls short.
    """
    return ", ".join(
        f"{name} by {1 - 1 / times:.1%} (too few tokens per second)"
        if name == "throughput"
        else f"{name} by {times - 1:.1%}"
        for name, times in over.items()
    )


def measure_whole(plan: RunPlan, budget: Budget, layouts: Sequence[Layout]) -> Measured:
    """Time whole layouts and the reference in turn, for every time that the budget limits."""
    timed = [name for name in budget.amounts if name in WORKLOADS]
    measurement = measurement_of(plan)
    named = {REFERENCE: budget.reference, **{layout_letters(one): one for one in layouts}}
    if timed:
        count = _counted(len(layouts), "layout")
        others = f"{budget.reference_name} whole, in turn{unchecked(plan.device)}"
        say(f"measuring {count} and {others}")
    times = {name: measurement.times_ms(name, named) for name in timed}
    shapes = measurement.shapes
    keys = {name: shapes.key(name) for name in timed}
    return Measured(budget, times, keys)


def time_models(
    plan: RunPlan, models: Mapping[str, LanguageModel], *, trained: bool = False
) -> Latencies:
    """Time the forward passes of models in turn; no figures where the machine is busy.

    Of `trained` models as they are; of others at the weights that costs are taken of.
    """
    if not trained:
        models = {name: model.costliest() for name, model in models.items()}
    count = _counted(len(models), "model")
    say(f"measuring the latency of {count} in turn{unchecked(plan.device)}")
    costs = plan.experiment.costs
    return measure_latency(
        {name: model.to(plan.device) for name, model in models.items()},
        shapes_of(plan),
        rounds=costs.repeats,
        patience_s=costs.patience_s,
    )


def _counted(count: int, word: str) -> str:
    return f"{count} {word}{'s' * (count != 1)}"
