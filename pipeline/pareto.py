"""Which layouts no other one beats in both a cost and its score by the SuperNet's weights."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from model import (
    Architecture,
    Layout,
    Network,
    TimedCost,
    layout_letters,
    load_architecture,
    network_of,
)
from nas.costs.budget import UNITS, Amount, Budget, LayoutCost, Limit
from nas.costs.latency import WORKLOADS
from nas.costs.model import CostModel
from nas.derivation import method_of
from nas.derivation.base import Derived, Request
from nas.derivation.from_search import Searched, read_searches
from nas.derivation.ranking import networks_by_score
from nas.statistics.paired_scores import Score
from pipeline.costs import cost_model
from pipeline.derive import architecture_of, reference_layout, request_of, write_architecture
from pipeline.layout_scores import SupernetScores
from pipeline.opponents import check_sizes
from pipeline.plan import RunPlan
from pipeline.run_files import layout_name
from utils.files import csv_of, read_object, write_whole
from utils.pareto import dominates
from utils.screen import say
from utils.text import aligned
from utils.validation import must_be_one_of

TABLE, SUMMARY = "pareto.csv", "pareto.json"
# So many costs between the cheapest and the dearest layout, at each of which networks are scored.
_LEVELS = 12
_UNITS = {"cache": "bytes", "parameters": "", "flops": "per token", "throughput": "ms a pass"}
# So many layouts at most are timed whole: the unbeaten ones by prediction, then the best others.
_MOST_TIMED = 24


@dataclass(frozen=True)
class Point:
    """A layout with its cost and its score; of one that was measured whole the times.

    `over`: it breaks a limit on another cost, so it is no part of a front. `rule`: which one names
    it; nothing for the reference, None for one that was found by the search.
    """

    layout: Layout
    cost: float
    score: Score
    times: tuple[TimedCost, ...] = ()
    over: bool = False
    rule: str | None = None

    @property
    def values(self) -> tuple[float, float]:
        """What is minimised."""
        return self.cost, self.score.nats_per_token


def front(points: Sequence[Point]) -> list[Point]:
    """The points that no other one dominates, the cheapest first; of equal ones the first."""
    unbeaten = dict[tuple[float, float], Point]()
    points = [point for point in points if not point.over]
    for point in points:
        if not any(dominates(other.values, point.values) for other in points):
            unbeaten.setdefault(point.values, point)
    return sorted(unbeaten.values(), key=lambda point: point.values)


def derive_front(plan: RunPlan, cost: str) -> str:
    """Score networks of every cost, measure the best whole; write table and JSONs.

    All keep the limits of derive.budget on other costs; rules and the reference, which are scored
    and measured beside them, need not. RUN/pareto.csv has every layout that was measured
    (counted costs: scored), RUN/pareto.json names the architectures of the front.

    Returns:
        The front and the rules as a table for the screen.
    """
    if cost not in UNITS:
        raise ValueError(f"--pareto: {must_be_one_of(cost, list(UNITS))}")
    config = plan.experiment.derive
    seeds = config.searches or [plan.seed]
    request, costs = request_of(plan, config, seeds), cost_model(plan)
    searched, reference = read_searches(request, "pareto"), reference_layout(request)
    budget = _budget(plan, costs, reference, cost)
    others = [limit for limit in budget.limits() if limit.cost.name != cost]
    request = replace(request, limits=(*request.limits, *others))
    scores = SupernetScores(plan, seeds, config.score_tokens)
    points = _points(request, searched, reference, budget.costs[cost], scores)
    if any(name in WORKLOADS for name in budget.amounts):
        points = _measured(request, points, costs, budget)
    unbeaten = front(points)
    if not unbeaten:
        names = ", ".join(limit.cost.name for limit in others)
        raise ValueError(f"derive.budget: of {len(points)} layouts none keeps {names}; give more")
    evidence = searched.evidence(
        f"pareto: beaten by none of {len(points)} networks in {cost} and nats by the SuperNet's "
        f"weights, of {searched.averaged}"
    )
    made = list[str]()
    for point in unbeaten:
        own = evidence.model_copy(update={"inherited": point.score.measured()})
        name = f"pareto-{layout_name(layout_letters(point.layout))}"
        one = architecture_of(plan, Derived(point.layout, own), name, seeds, point.times)
        made.append(write_architecture(one, plan.experiment, plan.run_dir).name)
    given = config.budget.model_dump(exclude_none=True)
    summary = {
        "cost": cost,
        "unit": _UNITS.get(cost, "ms"),
        "measured": cost in WORKLOADS,
        "reference": layout_letters(reference),
        "front": made,
        "searches": list(seeds),
        "scored": len(points),
        "limits": {name: most for name, most in given.items() if name != cost},
        "limits_of": config.reference,
    }
    networks = {network_of(one.layout, request.tie_slots): one for one in points}
    one_x = networks[network_of(reference, request.tie_slots)].cost
    rows = _rows(points, unbeaten, one_x)
    write_whole(plan.run_dir / TABLE, csv_of(rows, list(rows[0])))
    write_whole(plan.run_dir / SUMMARY, json.dumps(summary, indent=1) + "\n")
    return front_text(rows, summary)


def _budget(plan: RunPlan, costs: CostModel, reference: Layout, cost: str) -> Budget:
    """The limits of derive.budget on other costs, and on the front's own cost none that counts."""
    config = plan.experiment.derive
    if cost in config.budget.amounts:
        say(f"derive.budget.{cost}: has no part in a front of {cost}, which goes across it")
    if config.fill is not None:
        say("derive.fill: has no part in a front")
    others = {name: most for name, most in config.budget.amounts.items() if name != cost}
    limited = costs.budget(others, reference, config.reference)
    amounts = {**others, cost: Amount(1.0, relative=True)}
    return replace(limited, amounts=amounts, costs={**limited.costs, **costs.costs([cost])})


def _points(
    request: Request, searched: Searched, reference: Layout, cost: LayoutCost,
    scores: SupernetScores,
) -> list[Point]:  # fmt: skip
    """Layouts with what they cost and their scores; each network once, those of rules first."""
    found = dict[Network, tuple[str | None, Layout]]()
    for name in ("interleaved", "par", "sandwich"):
        config = request.config.model_copy(update={"method": name})
        # A rule may need a kind that is no candidate, or more slots.
        with suppress(ValueError):
            layout = method_of(name)(replace(request, config=config)).layout
            found.setdefault(network_of(layout, request.tie_slots), (name, layout))
    found.setdefault(network_of(reference, request.tie_slots), ("", reference))
    for layout in _likeliest(request, searched, cost):
        found.setdefault(network_of(layout, request.tie_slots), (None, layout))
    say(f"pareto: {len(found)} networks are scored")
    return [
        Point(
            one,
            cost(one),
            scores.score(one),
            over=not all(limit.holds(one) for limit in request.limits),
            rule=rule,
        )
        for rule, one in found.values()
    ]


def _likeliest(request: Request, searched: Searched, cost: LayoutCost) -> Iterator[Layout]:
    """Of each level of cost the `derive.top` likeliest networks; drawn where alpha is idle."""
    stacks = [cost((candidate,) * request.slots) for candidate in request.candidates]
    score_LC = searched.log_pi_LC
    if not searched.learned:
        score_LC = np.random.default_rng(request.config.seed).normal(size=score_LC.shape)
    for most in np.linspace(min(stacks), max(stacks), _LEVELS):
        limits = (*request.limits, Limit(cost, float(most)))
        ranked = networks_by_score(score_LC, request.networks, limits)
        for _, choice in islice(ranked, request.config.top):
            yield request.networks.layout(choice)


def _measured(
    request: Request, points: Sequence[Point], costs: CostModel, budget: Budget
) -> list[Point]:
    """Those of rules, the reference and the most promising others, measured whole."""
    (*_, cost) = budget.amounts
    counted = [limit.holds for limit in request.limits if limit.cost.name not in WORKLOADS]
    by_score = sorted(points, key=lambda point: point.score.nats_per_token)
    named = [point for point in points if point.rule is not None]
    ordered = {one.layout: one for one in [*named, *front(points), *by_score]}
    chosen = [*ordered.values()][:_MOST_TIMED]
    uses, found = costs.use(budget, [one.layout for one in chosen]), list[Point]()
    for point in chosen:
        use = uses[point.layout]
        ms = next((timed.ms for timed in use.times if timed.name == cost), point.cost)
        kept = not use.over.keys() - {cost} and all(holds(point.layout) for holds in counted)
        found.append(replace(point, cost=ms, times=use.times, over=not kept))
    return found


def _rows(points: Sequence[Point], unbeaten: Sequence[Point], one_x: float) -> list[dict[str, Any]]:
    """A row for each point, the cheapest first."""
    on_front = {point.layout for point in unbeaten}
    return [
        {
            "rule": point.rule or "",
            "front": int(point.layout in on_front),
            "over": int(point.over),
            "layout": layout_letters(point.layout),
            "cost": round(point.cost, 6),
            "times_reference": round(point.cost / one_x, 6),
            "nats_per_token": round(point.score.nats_per_token, 6),
            "standard_error": round(point.score.standard_error, 6),
        }
        for point in sorted(points, key=lambda point: point.values)
    ]


def front_text(rows: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]) -> str:
    """The front and the rules, the cheapest first."""
    unit, reference = summary["unit"], summary["limits_of"]
    limits = ", ".join(f"{name} {most}" for name, most in summary["limits"].items())
    cost = f"{summary['cost']} ({unit})" if unit else summary["cost"]
    cells = [["layout", cost, f"x {reference}", "nats", "error", ""]]
    for row in rows:
        if row["front"] or row["rule"]:
            cost_text = f"{row['cost']:.4g}" if row["cost"] < 1000 else f"{row['cost']:,.0f}"
            numbers = [cost_text, f"{row['times_reference']:.3f}"]
            numbers += [f"{row[name]:.4f}" for name in ("nats_per_token", "standard_error")]
            beaten = ", over the budget" if row["over"] else "" if row["front"] else ", beaten"
            cells.append([row["layout"], *numbers, f"{row['rule']}{beaten}"])
    notes = [
        f"the front of {summary['scored']} networks that were scored for it, and of no others",
        *([f"its layouts keep {limits} (x of {reference})"] if limits else []),
        "nats: validation text, the SuperNet's weights; what a training gives is another matter",
        "error: over the text, of one layout; steps of the front that are smaller may be noise",
    ]
    return "\n".join([*aligned(cells, left=1), *notes])


def front_of(plan: RunPlan) -> list[Architecture]:
    """The architectures that derive.py --pareto named, the cheapest first."""
    path = plan.run_dir / SUMMARY
    if not path.exists():
        raise ValueError(f"{path}: not found; run derive.py {plan.run_dir} --pareto first")
    folder = plan.run_dir / "architectures"
    files = [folder / f"{name}.json" for name in read_object(path)["front"]]
    found = [load_architecture(file) for file in files]
    for file, architecture in zip(files, found, strict=True):
        check_sizes(plan, file, architecture)
    return found
