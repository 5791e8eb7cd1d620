"""Layouts of every cost: the best within each of several budgets, and which no other one beats."""

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from model import (
    Architecture,
    Evidence,
    Layout,
    TimedCost,
    layout_letters,
    load_architecture,
    network_of,
)
from nas.costs.budget import UNITS, Amount, LayoutCost, Limit
from nas.costs.config import BudgetConfig
from nas.costs.latency import WORKLOADS
from nas.derivation import PLACING, method_of
from nas.derivation.base import Derived, Request
from nas.derivation.from_search import read_searches
from pipeline.costs import cost_model
from pipeline.derive import (
    architecture_of,
    reference_layout,
    request_of,
    table_text,
    write_architecture,
)
from pipeline.layout_scores import SupernetScores
from pipeline.plan import RunPlan
from pipeline.run_files import layout_name
from utils.files import csv_of, read_object, write_whole
from utils.pareto import unbeaten
from utils.screen import say
from utils.validation import must_be_one_of

TABLE, SUMMARY = "pareto.csv", "pareto.json"
# So many budgets between the cheapest and the dearest layout.
_LEVELS = 12
_UNITS = {"cache": "bytes", "parameters": "", "flops": "per token", "throughput": "ms a pass"}


def derive_front(plan: RunPlan, cost: str) -> str:
    """Derive within several budgets of a cost, by top_k (sampled where alpha does not learn).

    Rules and the reference are scored beside them, and a time is measured of all. RUN/pareto.csv
    has every layout, RUN/pareto.json names the architectures that no other layout beats.

    Returns:
        The table for the screen.
    """
    if cost not in UNITS:
        raise ValueError(f"--pareto: {must_be_one_of(cost, list(UNITS))}")
    given = plan.experiment.derive
    if given.budget.amounts:
        say("derive.budget and derive.fill: have no part in a front, which goes across all costs")
    method = "top_k" if plan.experiment.search.alpha_learns else "sampled"
    config = given.model_copy(update={"method": method, "budget": BudgetConfig(), "fill": None})
    seeds, costs = config.searches or [plan.seed], cost_model(plan)
    scores = SupernetScores(plan, seeds, config.score_tokens)
    request = replace(request_of(plan, config, seeds), score=scores.score)
    read_searches(request, "pareto")
    reference, of_cost = reference_layout(request), costs.costs([cost])
    scores.score(reference)
    found = _derived(request, reference, of_cost[cost])
    layouts = [derived.layout for _, derived in found]
    values = [of_cost[cost](layout) for layout in layouts]
    times: list[tuple[TimedCost, ...]] = [()] * len(layouts)
    if cost in WORKLOADS:
        budget = costs.budget({}, reference, config.reference)
        budget = replace(budget, amounts={cost: Amount(1.0, relative=True)}, costs=of_cost)
        uses = costs.use(budget, layouts)
        times = [uses[layout].times for layout in layouts]
        values = [of_layout[0].ms for of_layout in times]
    nats = [scores.score(layout) for layout in layouts]
    best = unbeaten([(a, b.nats_per_token) for a, b in zip(values, nats, strict=True)])
    rows, made = list[dict[str, Any]](), list[str]()
    for at in sorted(range(len(layouts)), key=lambda at: (values[at], nats[at].nats_per_token)):
        rule, derived = found[at]
        letters = layout_letters(derived.layout)
        if at in best:
            evidence = derived.evidence.model_copy(update={"inherited": nats[at].measured()})
            one, name = replace(derived, evidence=evidence), f"pareto-{layout_name(letters)}"
            architecture = architecture_of(plan, one, name, seeds, times[at])
            made.append(write_architecture(architecture, plan.experiment, plan.run_dir).name)
        rows.append(
            {
                "rule": rule,
                "front": int(at in best),
                "layout": letters,
                "cost": round(values[at], 6),
                "times_reference": round(values[at] / values[0], 6),
                "nats_per_token": round(nats[at].nats_per_token, 6),
                "standard_error": round(nats[at].standard_error, 6),
            }
        )
    unit = _UNITS.get(cost, "ms")
    known = {"cost": cost, "unit": unit, "reference": layout_letters(reference), "front": made}
    write_whole(plan.run_dir / TABLE, csv_of(rows, list(rows[0])))
    write_whole(plan.run_dir / SUMMARY, json.dumps(known, indent=1) + "\n")
    return (
        f"{table_text(rows, [*rows[0]])}\n"
        f"cost: {cost} {unit}, times reference: multiple of {config.reference}; the best within "
        f"{_LEVELS} budgets by {method}, beside hand-written layouts\n"
        "nats/token on the validation text, with the SuperNet's weights, not those of a training\n"
        "error: over the text, of one layout; smaller steps of the front may be noise"
    )


def _derived(request: Request, reference: Layout, cost: LayoutCost) -> list[tuple[str, Derived]]:
    """The reference, rules, and the best layout within each budget; each network once."""
    name, known = request.config.reference, Evidence(method="the reference")
    found = {network_of(reference, request.tie_blocks): (name, Derived(reference, known))}
    stacks = [cost((one,) * request.slots) for one in request.candidates]
    budgets = [Limit(cost, float(most)) for most in np.linspace(min(stacks), max(stacks), _LEVELS)]
    asked = [(rule, request.limits) for rule in PLACING]
    asked += [(request.config.method, (*request.limits, budget)) for budget in budgets]
    for name, limits in asked:
        config = request.config.model_copy(update={"method": name})
        # A rule may need a kind that is no candidate; the least budget may leave no layout.
        with suppress(ValueError):
            derived = method_of(name)(replace(request, config=config, limits=limits))
            network = network_of(derived.layout, request.tie_blocks)
            found.setdefault(network, (name if name in PLACING else "", derived))
    return [*found.values()]


def front_of(plan: RunPlan) -> list[Architecture]:
    """The architectures that derive.py --pareto named, the cheapest first."""
    path = plan.run_dir / SUMMARY
    if not path.exists():
        raise ValueError(f"{path}: not found; run derive.py {plan.run_dir} --pareto first")
    folder = plan.run_dir / "architectures"
    return [load_architecture(folder / f"{name}.json") for name in read_object(path)["front"]]
