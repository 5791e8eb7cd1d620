"""Cost target of a search: the constraint on E[cost] under pi, its costs, and its path."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from model import layout_letters
from nas.costs.budget import LayoutCost, Limit, parse_amount
from nas.derivation.base import Networks
from nas.derivation.ranking import networks_by_score
from nas.search.constraint import Constraint, cost_constraint, share_constraint
from nas.search.trajectory import load_pi
from pipeline.costs import cost_model
from pipeline.derive import reference_layout, request_of
from pipeline.plan import RunPlan
from utils.files import csv_of, read_object, write_whole
from utils.pi import log_softmax, softmax

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

    def times_reference(self, cost: float) -> str:
        """A cost as a multiple of the reference's."""
        return f"{cost / self.reference_cost:.3f}x"

    def to_json(self) -> str:
        """As RUN/search/seed-N/costs.json has it."""
        return json.dumps(asdict(self), indent=1) + "\n"


def bounds_of(plan: RunPlan) -> tuple[tuple[Constraint, ...], dict[str, str]]:
    """The bounds on pi that the experiment asks for, and what is saved of them before step 0.

    The bound that holds first stands first.

    Raises:
        ValueError: the costs are not to be had, or every candidate adds something.
        Lost: another process of the run is gone.
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
        costs = search_costs(plan)
        labels = [candidate.label for candidate in plan.candidates]
        bounds.append(cost_constraint(costs.cost, labels, costs.most, config.rate))
        files[FILE] = costs.to_json()
    return tuple(bounds), files


def search_costs(plan: RunPlan) -> SearchCosts:
    """The costs that the plan's search began with, else measured or counted now.

    The first process measures and tells the others.
    """
    folder, text = plan.search_folder(plan.seed), None
    if plan.ranks.is_first:
        begun = (folder / "identity.json").exists()
        text = (read_costs(folder) if begun else _fresh(plan)).to_json()
    return SearchCosts(**json.loads(plan.ranks.broadcast_str(text)))


def _fresh(plan: RunPlan) -> SearchCosts:
    config, tied = plan.experiment.search.cost, plan.sizes["tie_slots"]
    if config.name == "parameters" and tied is not None:
        raise ValueError(
            f"search.cost.name: parameters do not add up over slots that share weights "
            f"(model.tie_slots {tied}); take flops or latency"
        )
    assert config.target is not None
    derive = plan.experiment.derive.model_copy(update={"reference": config.reference})
    reference = reference_layout(request_of(plan, derive, []), "search.cost.reference")
    amounts = {str(config.name): parse_amount(config.name, config.target)}
    key = "search.cost.target"
    budget = cost_model(plan).budget(amounts, reference, config.reference, key=key)
    cost = budget.costs[config.name]
    if not cost(reference):
        raise ValueError(
            f"search.cost.reference: {config.reference} costs no {config.name}, and a search tells "
            "costs as multiples of it; give a layout that costs some"
        )
    return SearchCosts(
        name=config.name,
        by_label=dict(cost.by_label),
        rest=cost.rest,
        most=budget.most(config.name, cost(reference)),
        reference=layout_letters(reference),
        reference_cost=cost(reference),
    )


def read_costs(folder: Path) -> SearchCosts:
    """The costs that the search of a folder began with."""
    return SearchCosts(**read_object(folder / FILE))


def cost_path(
    arrays: Mapping[str, Any], costs: SearchCosts, networks: Networks
) -> list[dict[str, float]]:
    """What pi was expected to cost after some steps, and two layouts that it names.

    `expected` of pi, `argmax` of each slot's likeliest candidate, `within` of the likeliest layout
    within the target.
    """
    steps = len(arrays["alpha"])
    rows = np.unique(np.linspace(0, steps - 1, min(steps, _MOST_STEPS)).round().astype(int))
    value_C = np.array([costs.by_label[str(label)] for label in arrays["labels"]])
    limit = (Limit(costs.cost, costs.most),)

    def cost(choice: Sequence[int]) -> float:
        return costs.rest + float(value_C[list(choice)].sum())

    path = []
    for row in rows.tolist():
        alpha_LC = arrays["alpha"][row].astype(np.float64)
        _, within = next(networks_by_score(log_softmax(alpha_LC), networks, limit))
        expected = costs.rest + float((softmax(alpha_LC) * value_C).sum())
        argmax = cost(alpha_LC.argmax(axis=1).tolist())
        path.append(
            {"step": row + 1, "expected": expected, "argmax": argmax, "within": cost(within)}
        )
    return path


def finish_costs(plan: RunPlan, folder: Path) -> list[str]:
    """Write the path of the costs, for the figures; what they came to, in words."""
    if plan.experiment.search.cost.target is None:
        return []
    costs = read_costs(folder)
    networks = Networks(plan.candidates, plan.sizes["tie_slots"])
    path = cost_path(load_pi(folder / "pi.npz"), costs, networks)
    write_whole(folder / PATH, csv_of(path, list(path[0])))
    last = {name: costs.times_reference(value) for name, value in path[-1].items()}
    return [
        f"{costs.name} over that of {costs.reference}: expected of pi {last['expected']}, target "
        f"{costs.times_reference(costs.most)}; argmax {last['argmax']}, likeliest layout within "
        f"the target {last['within']}"
    ]
