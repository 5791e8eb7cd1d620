"""What layouts of a run cost: its cost model, and the cost target of a search."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from data.cache import default_cache, key_hash
from model import LanguageModel, layout_letters
from nas.costs.budget import LayoutCost, parse_amount
from nas.costs.latency import Latencies, Shapes, measure_latency
from nas.costs.model import CostModel
from nas.derivation import reference_layout
from nas.search.constraint import Constraint, cost_constraint, share_constraint
from pipeline.plan import RunPlan
from training.distributed import ALONE
from training.run_dir import machine, source_digest
from utils.files import csv_of, read_object, write_whole
from utils.pi import load_pi, softmax, thin
from utils.screen import say
from utils.text import plural

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
        key=key,
        path=costs.table or default_cache() / "costs" / f"{key_hash(key)[:20]}.json",
        take_unsure=costs.take_unsure,
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
        # A table of sure times stays as it was.
        **({"take_unsure": True} if experiment.costs.take_unsure else {}),
        "train_batch": experiment.data.batch,
        "segment": experiment.data.segment,
        "slots": len(plan.slots),
        "candidates": [candidate.model_dump(mode="json") for candidate in plan.candidates],
        **{name: plan.sizes[name] for name in ("d_model", "tie_blocks", "vocabulary_size")},
        "softmax": plan.experiment.model.softmax.model_dump(mode="json"),
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
    """Time the forward passes of models in turn; no figures where times are unsteady.

    Of `trained` models as they are; of others at the weights that costs are taken of.
    """
    costs = cost_model(plan)
    say(f"measuring the latency of {plural(len(models), 'model')} in turn")
    if not trained:
        models = {name: model.costliest() for name, model in models.items()}
    models = {name: model.to(plan.device) for name, model in models.items()}
    return measure_latency(models, costs.shapes, rounds=costs.rounds, take_unsure=costs.take_unsure)


# What a search's folder has of a cost target: the costs, and what pi was expected to cost.
FILE, PATH = "costs.json", "cost.csv"
_MOST_STEPS = 200


@dataclass(frozen=True)
class SearchCosts:
    """Cost target of a search: the costs that it began with, which a resume heeds again.

    `most` is the target, `reference_cost` the cost of the layout `reference`; all in one unit.
    """

    name: str
    by_label: dict[str, float]
    rest: float
    most: float
    reference: str
    reference_cost: float

    @property
    def cost(self) -> LayoutCost:
        """What layouts cost."""
        return LayoutCost(self.name, self.by_label, self.rest)


def bounds_of(plan: RunPlan) -> tuple[tuple[Constraint, ...], dict[str, str]]:
    """The bounds on pi that the experiment asks for, and what is saved of them before step 0.

    The bound that holds first stands first.
    """
    config, bounds, files = plan.experiment.search.cost, list[Constraint](), dict[str, str]()
    if config.most_nothing is not None:
        if not any(plan.adds_nothing.values()):
            raise ValueError(
                "search.cost.most_nothing: every candidate adds something; leave it out, or add "
                "identity to model.candidates"
            )
        share = (plan.adds_nothing, len(plan.slots), config.most_nothing)
        bounds.append(share_constraint(*share, config.rate))
    if config.target is not None:
        text = None
        # The first process measures, or reads what the search began with, and tells the others.
        if plan.ranks.is_first:
            folder = plan.search_folder(plan.seed)
            begun = (folder / "identity.json").exists()
            costs = read_costs(folder) if begun else _search_costs(plan, config.target)
            text = json.dumps(asdict(costs), indent=1) + "\n"
        files[FILE] = plan.ranks.broadcast_str(text)
        costs = SearchCosts(**json.loads(files[FILE]))
        labels = [candidate.label for candidate in plan.candidates]
        bounds.append(cost_constraint(costs.cost, labels, costs.most, config.rate))
    return tuple(bounds), files


def _search_costs(plan: RunPlan, target: str | float) -> SearchCosts:
    """The costs of a search that begins, measured or counted now."""
    config, tied = plan.experiment.search.cost, plan.sizes["tie_blocks"]
    if config.name == "parameters" and tied is not None:
        raise ValueError(
            f"search.cost.name: parameters do not add up over blocks that share weights "
            f"(model.tie_blocks {tied}); take flops or latency"
        )
    derive = plan.experiment.derive.model_copy(update={"reference": config.reference})
    reference = reference_layout(plan.request(derive, []), "search.cost.reference")
    amounts = {str(config.name): parse_amount(config.name, target)}
    key = "search.cost.target"
    budget = cost_model(plan).budget(amounts, reference, config.reference, key=key)
    cost = budget.costs[config.name]
    if not (whole := cost(reference)):
        raise ValueError(
            f"search.cost.reference: {config.reference} costs no {config.name}, so nothing is a "
            "multiple of it; give another layout"
        )
    most = budget.most(config.name, whole)
    by_label, letters = dict(cost.by_label), layout_letters(reference)
    return SearchCosts(config.name, by_label, cost.rest, most, letters, whole)


def read_costs(folder: Path) -> SearchCosts:
    """The costs that the search of a folder began with."""
    return SearchCosts(**read_object(folder / FILE))


def cost_path(arrays: Mapping[str, Any], costs: SearchCosts) -> list[dict[str, float]]:
    """What pi was expected to cost after some steps, and each slot's likeliest candidate."""
    rows_N = thin(len(arrays["alpha"]), _MOST_STEPS)
    alpha_NLC = arrays["alpha"][rows_N].astype(np.float64)
    value_C = np.array([costs.by_label[str(label)] for label in arrays["labels"]])
    expected_N = costs.rest + (softmax(alpha_NLC) * value_C).sum(axis=(1, 2))
    argmax_N = costs.rest + value_C[alpha_NLC.argmax(axis=2)].sum(axis=1)
    columns = zip((rows_N + 1).tolist(), expected_N.tolist(), argmax_N.tolist(), strict=True)
    return [dict(zip(("step", "expected", "argmax"), row, strict=True)) for row in columns]


def finish_costs(plan: RunPlan, folder: Path) -> list[str]:
    """Write the path of the costs, for the figures; what they came to, in words."""
    costs = read_costs(folder)
    path = cost_path(load_pi(folder / "pi.npz"), costs)
    write_whole(folder / PATH, csv_of(path, list(path[0])))
    ends = {**path[-1], "most": costs.most}
    last = {name: f"{value / costs.reference_cost:.3f}x" for name, value in ends.items()}
    return [
        f"{costs.name} relative to {costs.reference}: {last['expected']} expected by pi, target "
        f"{last['most']}; {last['argmax']} for the likeliest layout"
    ]
