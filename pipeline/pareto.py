"""Which layouts no other one beats in both a cost and its score by the SuperNet's weights."""

import json
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from model import Architecture, Layout, Network, TimedCost, layout_letters, network_of
from nas.costs.budget import UNITS, Amount, Budget, LayoutCost, Limit
from nas.costs.workloads import WORKLOADS
from nas.derivation import RULES, Derived, Request
from nas.derivation.config import DeriveConfig
from nas.derivation.ranking import networks_by_score
from nas.derivation.searched import Searched, read_searches
from nas.statistics.paired_scores import Score
from pipeline.costs import Measured, budget_of, costs_of, measure_whole, over
from pipeline.derive import architecture_of, reference_layout, request_of, write_architecture
from pipeline.experiment import dump_experiment
from pipeline.plan import RunPlan, as_saved
from pipeline.run_files import layout_name
from pipeline.supernet_scores import SupernetScores
from utils.files import csv_of, write_whole
from utils.pareto import dominates
from utils.screen import say
from utils.text import aligned
from utils.validation import must_be_one_of

TABLE, SUMMARY, EXPERIMENT = "pareto.csv", "pareto.json", "pareto.yaml"
# So many costs between the cheapest and the dearest layout, at each of which networks are scored.
_LEVELS = 12
_UNITS = {"cache": "bytes", "parameters": "", "flops": "per token", "throughput": "ms a pass"}
# So many layouts at most are timed whole: the unbeaten ones by prediction, then the best others.
_MOST_TIMED = 24


@dataclass(frozen=True)
class Point:
    """A layout with its cost and its score; of one that was measured whole the times.

    `over`: it breaks a limit on another cost, so it is no part of a front.
    """

    layout: Layout
    cost: float
    score: Score
    times: tuple[TimedCost, ...] = ()
    over: bool = False

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


@dataclass(frozen=True)
class Front:
    """What is weighed: the searches of a run, one cost, and the layout whose cost is 1x.

    `request.limits` are those of derive.budget on other costs; on its own cost a front has none.
    """

    plan: RunPlan
    request: Request
    searched: Searched
    budget: Budget
    name: str

    @property
    def cost(self) -> LayoutCost:
        """Counted, or predicted from the table."""
        return self.budget.costs[self.name]

    def network(self, layout: Layout) -> Network:
        """The network of a layout."""
        return network_of(layout, self.request.tie_slots)

    def rules(self) -> dict[str, Layout]:
        """The layouts of the rules that serve here; of one network the first."""
        layouts = dict[str, Layout]()
        for name in ("interleaved", "par", "sandwich"):
            config = self.request.config.model_copy(update={"method": name})
            # A rule may need a kind that is no candidate, or more slots.
            with suppress(ValueError):
                layout = RULES[name](replace(self.request, config=config)).layout
                if self.network(layout) not in map(self.network, layouts.values()):
                    layouts[name] = layout
        return layouts

    def layouts(self) -> Iterator[Layout]:
        """Of each level of cost the `derive.top` likeliest networks; drawn where alpha is idle."""
        candidates, slots = self.request.candidates, self.request.slots
        stacks = [self.cost((candidate,) * slots) for candidate in candidates]
        score_LC = self.searched.log_pi_LC
        if not self.searched.learned:
            score_LC = np.random.default_rng(self.request.config.seed).normal(size=score_LC.shape)
        for most in np.linspace(min(stacks), max(stacks), _LEVELS):
            limits = (*self.request.limits, Limit(self.cost, float(most)))
            ranked = networks_by_score(score_LC, self.request.networks, limits)
            for _, choice in islice(ranked, self.request.config.top):
                yield self.request.networks.layout(choice)

    def points(self, layouts: Sequence[Layout]) -> list[Point]:
        """Layouts with what they cost and their scores; each network once."""
        assert self.request.score is not None
        by_network = dict[Network, Layout]()
        for layout in layouts:
            by_network.setdefault(self.network(layout), layout)
        say(f"pareto: {len(by_network)} networks are scored")
        score, limits = self.request.score, self.request.limits
        return [
            Point(
                one,
                self.cost(one),
                score(one),
                over=not all(limit.holds(one) for limit in limits),
            )
            for one in by_network.values()
        ]

    def timed(self, points: Sequence[Point], rules: Set[Network]) -> list[Point]:
        """Where a cost is a time, the most promising points with what they take when measured."""
        if not any(name in WORKLOADS for name in self.budget.costs):
            return list(points)
        by_score = sorted(points, key=lambda point: point.score.nats_per_token)
        of_rules = [point for point in points if self.network(point.layout) in rules]
        ordered = {self.network(one.layout): one for one in [*of_rules, *front(points), *by_score]}
        chosen = [*ordered.values()][:_MOST_TIMED]
        measured = measure_whole(self.plan, self.budget, [point.layout for point in chosen])
        return [self._measured(point, measured) for point in chosen]

    def _measured(self, point: Point, measured: Measured) -> Point:
        times, share = measured.costs(point.layout), measured.share(point.layout)
        ms = next((timed.ms for timed in times if timed.name == self.name), point.cost)
        limited = {name: part for name, part in share.items() if name != self.name}
        counted = [limit for limit in self.request.limits if limit.cost.name not in WORKLOADS]
        kept = not over(limited) and all(limit.holds(point.layout) for limit in counted)
        return replace(point, cost=ms, times=times, over=not kept)

    def architecture(self, point: Point, seeds: Sequence[int], scored: int) -> Architecture:
        """The architecture of a point of the front."""
        evidence = self.searched.evidence(
            f"pareto: beaten by none of {scored} networks in {self.cost.name} and nats by the "
            f"SuperNet's weights, of {self.searched.averaged}"
        )
        update = {"inherited": point.score.measured()}
        derived = Derived(point.layout, evidence.model_copy(update=update))
        name = f"pareto-{layout_name(layout_letters(point.layout))}"
        return architecture_of(self.plan, derived, name, seeds, point.times)


def derive_front(plan: RunPlan, cost: str) -> str:
    """Score networks of every cost, measure the best whole; write table and JSONs.

    All keep the limits of derive.budget on other costs; rules and the reference, which are scored
    and measured beside them, need not. RUN/pareto.csv has every layout that was measured
    (counted costs: scored), RUN/pareto.json names the architectures of the front.

    Returns:
        The front and the rules as a table for the screen.

    Raises:
        ValueError: there is no such cost, or no finished search, or its weights are not there, or
            the machine is busy.
    """
    if cost not in UNITS:
        raise ValueError(f"--pareto: {must_be_one_of(cost, list(UNITS))}")
    config = plan.experiment.derive
    seeds = config.searches or [plan.seed]
    scores = SupernetScores(plan, seeds, config.score_tokens)
    request = replace(request_of(plan, config, seeds), score=scores.score)
    searched, reference = read_searches(request, "pareto"), reference_layout(request)
    others = {name: most for name, most in config.budget.amounts.items() if name != cost}
    limited = budget_of(plan, others, reference, config.reference, filled=False)
    request = replace(request, limits=(*request.limits, *limited.limits()))
    _say_unused(config, cost)
    budget = replace(
        limited,
        amounts={**others, cost: Amount(1.0, relative=True)},
        costs={**limited.costs, **costs_of(plan, [cost])},
    )
    weighed = Front(plan, request, searched, budget, cost)
    rules = weighed.rules()
    points = weighed.points([*rules.values(), reference, *weighed.layouts()])
    rule_of = {weighed.network(layout): name for name, layout in rules.items()}
    points = weighed.timed(points, {*rule_of, weighed.network(reference)})
    unbeaten = front(points)
    if not unbeaten:
        raise ValueError(
            f"derive.budget: of {len(points)} layouts none keeps {', '.join(others)}; give more"
        )
    names = [
        write_architecture(
            weighed.architecture(one, seeds, len(points)), plan.experiment, plan.run_dir
        ).name
        for one in unbeaten
    ]
    unit = _UNITS.get(cost, "ms")
    summary: dict[str, Any] = {"cost": cost, "unit": unit, "measured": cost in WORKLOADS}
    summary |= {"reference": layout_letters(reference), "front": names, "searches": list(seeds)}
    kept = config.budget.model_dump(include=set(others)) if others else {}
    summary |= {"scored": len(points), "limits": kept, "limits_of": config.reference}
    rows = _rows(weighed, points, rule_of)
    write_whole(plan.run_dir / TABLE, csv_of(rows, list(rows[0])))
    write_whole(plan.run_dir / EXPERIMENT, dump_experiment(as_saved(plan.experiment)))
    write_whole(plan.run_dir / SUMMARY, json.dumps(summary, indent=1) + "\n")
    limits = ", ".join(f"{name} {most}" for name, most in kept.items())
    words = f"{cost} ({unit})" if unit else cost
    return front_text(rows, words, config.reference, len(points), limits)


def _say_unused(config: DeriveConfig, cost: str) -> None:
    if cost in config.budget.amounts:
        say(f"derive.budget.{cost}: has no part in a front of {cost}, which goes across it")
    if config.fill is not None:
        say("derive.fill: has no part in a front")


def _rows(
    weighed: Front, points: Sequence[Point], rule_of: Mapping[Network, str]
) -> list[dict[str, Any]]:
    """A row for each point, the cheapest first."""
    networks = {id(point): weighed.network(point.layout) for point in points}
    reference = weighed.network(weighed.budget.reference)
    one_x = next(point.cost for point in points if networks[id(point)] == reference)
    unbeaten = {id(point) for point in front(points)}
    return [
        {
            "rule": rule_of.get(networks[id(point)], ""),
            "front": int(id(point) in unbeaten),
            "over": int(point.over),
            "layout": layout_letters(point.layout),
            "cost": round(point.cost, 6),
            "times_reference": round(point.cost / one_x, 6),
            "nats_per_token": round(point.score.nats_per_token, 6),
            "standard_error": round(point.score.standard_error, 6),
        }
        for point in sorted(points, key=lambda point: point.values)
    ]


def front_text(
    rows: Sequence[Mapping[str, Any]], cost: str, reference: str, scored: int, limits: str
) -> str:
    """The front and the rules, the cheapest first."""
    cells = [["layout", cost, f"x {reference}", "nats", "error", ""]]
    for row in rows:
        if row["front"] or row["rule"]:
            cost_text = f"{row['cost']:.4g}" if row["cost"] < 1000 else f"{row['cost']:,.0f}"
            numbers = [cost_text, f"{row['times_reference']:.3f}"]
            numbers += [f"{row[name]:.4f}" for name in ("nats_per_token", "standard_error")]
            beaten = ", over the budget" if row["over"] else "" if row["front"] else ", beaten"
            cells.append([row["layout"], *numbers, f"{row['rule']}{beaten}"])
    notes = [
        f"the front of {scored} networks that were scored for it, and of no others",
        *([f"its layouts keep {limits} (x of {reference})"] if limits else []),
        "nats: validation text, the SuperNet's weights; what a training gives is another matter",
        "error: over the text, of one layout; steps of the front that are smaller may be noise",
    ]
    return "\n".join([*aligned(cells, left=1), *notes])
