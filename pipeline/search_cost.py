"""Cost target of a search: the constraint on E[cost] under pi, its costs, and its path."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model import layout_letters
from nas.costs.budget import Amount, Budget, LayoutCost, Limit, parse_amount
from nas.derivation.base import Networks
from nas.derivation.ranking import networks_by_score
from nas.search.constraint import Constraint, cost_constraint, share_constraint
from nas.search.diagnostics import COST_REMEDY, MOST_NOTHING
from nas.search.trajectory import load_pi
from pipeline.costs import cost_model
from pipeline.derive import reference_layout, request_of
from pipeline.plan import RunPlan
from pipeline.run_files import reading
from training.state import Metrics, TrainState
from utils.files import append_line, csv_of, read_object, write_whole
from utils.pi import log_softmax, softmax
from utils.screen import announce

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


def search_costs(plan: RunPlan) -> SearchCosts | None:
    """The costs of the plan's search: those that it began with, else measured or counted now.

    The first process measures and tells the others. None where the search has no target.

    Raises:
        ValueError: the costs are not to be had.
        Lost: another process of the run is gone.
    """
    if plan.experiment.search.cost.target is None:
        return None
    folder, text = plan.search_folder(plan.seed), None
    if plan.ranks.is_first:
        if (folder / "identity.json").exists():
            text = _as_json(read_costs(folder))
        else:
            text = _as_json(_fresh(plan))
    return SearchCosts(**json.loads(plan.ranks.broadcast_str(text)))


def _as_json(costs: SearchCosts) -> str:
    return json.dumps(asdict(costs), indent=1) + "\n"


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
    costs = cost_model(plan).costs([config.name])
    amounts: dict[str, Amount] = {config.name: parse_amount(config.name, config.target)}
    budget = Budget(amounts, costs, reference, config.reference, 0, "search.cost.target")
    budget.check(plan.candidates, len(plan.slots))
    cost = costs[config.name]
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
    with reading(folder / FILE):
        return SearchCosts(**read_object(folder / FILE))


def costs_file(costs: SearchCosts | None) -> dict[str, str]:
    """What a search saves before step 0."""
    return {} if costs is None else {FILE: _as_json(costs)}


@dataclass
class NothingGuard:
    """Says once, in the step in which it comes to it, that costs drive pi to identity.

    `idle_C` says of each candidate, in alpha's order, whether it adds nothing; without a log
    nothing is said.
    """

    idle_C: Sequence[bool]
    log: Path | None
    _warned: bool = False

    def __call__(self, state: TrainState, metrics: Metrics) -> None:
        """Look at pi after a step (a hook of the loop)."""
        if self._warned or self.log is None:
            return
        pi_LC = softmax(state.parameters["alpha"].detach().numpy())
        share = float(pi_LC.mean(axis=0)[list(self.idle_C)].sum())
        if share > MOST_NOTHING:
            self._warned = True
            line = (
                f"warning: after step {state.step} candidates that add nothing have {share:.0%} of "
                f"pi (above {MOST_NOTHING:.0%}). {COST_REMEDY}"
            )
            announce(line)
            append_line(self.log, line)


def guards_of(plan: RunPlan) -> list[NothingGuard]:
    """The guard of a search that heeds a cost."""
    if plan.experiment.search.cost.target is None:
        return []
    log = plan.search_folder(plan.seed) / "train.log" if plan.ranks.is_first else None
    return [NothingGuard(list(plan.adds_nothing.values()), log)]


def constraints_of(plan: RunPlan, costs: SearchCosts | None) -> tuple[Constraint, ...]:
    """The bounds on pi that the experiment asks for; the one that holds first stands first."""
    config, bounds = plan.experiment.search.cost, list[Constraint]()
    if config.most_nothing is not None:
        if not any(plan.adds_nothing.values()):
            raise ValueError(
                "search.cost.most_nothing: every candidate adds something; leave it out, or add "
                "identity to model.candidates"
            )
        most, slots = config.most_nothing, len(plan.slots)
        bounds.append(share_constraint(plan.adds_nothing, slots, most, config.rate))
        if costs is not None:
            _check_both(plan.adds_nothing, slots, most, costs)
    if costs is not None:
        labels = [candidate.label for candidate in plan.candidates]
        bounds.append(cost_constraint(costs.cost, labels, costs.most, config.rate))
    return tuple(bounds)


def _check_both(
    adds_nothing: Mapping[str, bool], slots: int, most_nothing: float, costs: SearchCosts
) -> None:
    """Raise ValueError where pi cannot cost so little with so little that adds nothing."""
    idle, other = (
        min(costs.by_label[label] for label, none in adds_nothing.items() if none == wanted)
        for wanted in (True, False)
    )
    least = costs.rest + slots * min(other, most_nothing * idle + (1.0 - most_nothing) * other)
    if least > costs.most:
        raise ValueError(
            f"search.cost: with most_nothing {most_nothing:g} pi costs "
            f"{costs.times_reference(least)} of {costs.reference} or more, above the target "
            f"{costs.times_reference(costs.most)}; raise either"
        )


@dataclass(frozen=True)
class CostPath:
    """What pi was expected to cost after some steps, and two layouts that it names.

    N steps: of pi, of each slot's likeliest candidate, of the likeliest layout within the target.
    """

    step_N: NDArray[np.int64]
    expected_N: NDArray[np.float64]
    argmax_N: NDArray[np.float64]
    within_N: NDArray[np.float64]


def cost_path(
    alpha_NLC: NDArray[Any], labels: Sequence[str], costs: SearchCosts, networks: Networks
) -> CostPath:
    """The path of at most 200 steps, the last one among them."""
    rows = np.unique(np.linspace(0, len(alpha_NLC) - 1, _MOST_STEPS).round().astype(int))
    value_C = np.array([costs.by_label[label] for label in labels])
    alpha_NLC = alpha_NLC[rows].astype(np.float64)
    limit = (Limit(costs.cost, costs.most),)
    within = list[float]()
    for alpha_LC in alpha_NLC:
        _, choice = next(networks_by_score(log_softmax(alpha_LC), networks, limit))
        within.append(costs.rest + float(value_C[list(choice)].sum()))
    return CostPath(
        step_N=rows + 1,
        expected_N=costs.rest + (softmax(alpha_NLC) * value_C).sum(axis=(1, 2)),
        argmax_N=costs.rest + value_C[alpha_NLC.argmax(axis=2)].sum(axis=1),
        within_N=np.array(within),
    )


def finish_costs(plan: RunPlan, folder: Path) -> list[str]:
    """Write the path of the costs, for the figures; what they came to, in words."""
    if plan.experiment.search.cost.target is None:
        return []
    costs = read_costs(folder)
    arrays = load_pi(folder / "pi.npz")
    labels = [str(label) for label in arrays["labels"]]
    networks = Networks(plan.candidates, plan.sizes["tie_slots"])
    path = cost_path(arrays["alpha"], labels, costs, networks)
    columns = ("step", "expected", "argmax", "within")
    values = zip(path.step_N, path.expected_N, path.argmax_N, path.within_N, strict=True)
    rows = [dict(zip(columns, map(float, row), strict=True)) for row in values]
    write_whole(folder / PATH, csv_of([{**row, "step": int(row["step"])} for row in rows], columns))
    last = {name: costs.times_reference(rows[-1][name]) for name in columns[1:]}
    return [
        f"{costs.name} over that of {costs.reference}: expected of pi {last['expected']}, target "
        f"{costs.times_reference(costs.most)}; argmax {last['argmax']}, likeliest layout within "
        f"the target {last['within']}"
    ]
