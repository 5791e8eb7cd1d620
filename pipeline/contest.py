"""Opponents of a run's chosen layout that cost what it costs: counted, or timed beside it."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from model import Architecture, Evidence, Network
from nas.costs.workloads import WORKLOADS
from nas.derivation import Derived, Layout
from nas.opponents import OPPONENTS, Contest
from pipeline.context import RunPlan, say
from pipeline.costs import costs_of, counted_cost, measurement_of
from pipeline.derive import architecture_of, request_of

_CHOSEN = "the chosen one"


def equal_cost(plan: RunPlan, chosen: Architecture) -> str:
    """The cost that opponents share with the chosen layout; `auto` is what it was derived for."""
    asked = plan.experiment.compare.equal
    if asked != "auto":
        return asked
    times = chosen.costs.times if chosen.costs is not None else ()
    return "latency" if "latency" in [timed.name for timed in times] else "flops"


def contest(plan: RunPlan, chosen: Architecture, taken: frozenset[Network], count: int) -> Contest:
    """What an opponent may ask; times are measured when they are asked for."""
    cost, layout = equal_cost(plan, chosen), tuple(chosen.slots)
    request = request_of(plan, plan.experiment.derive, [])
    predicted, measured = (
        _timed(plan, cost, layout) if cost in WORKLOADS else _counted(plan, cost, layout)
    )
    # Not the seed of a derivation: the same opponents whatever was derived.
    request = replace(request, config=request.config.model_copy(update={"seed": 0}))
    return Contest(request, layout, taken, count, cost, predicted, measured)


Shares = tuple[Callable[[Layout], float], Callable[[Sequence[Layout]], list[float]]]


def _counted(plan: RunPlan, cost: str, chosen: Layout) -> Shares:
    def count(layout: Layout) -> float:
        candidates = list({slot.label: slot for slot in layout}.values())
        return counted_cost(plan, cost, candidates)(layout)

    # Of the experiment's candidates from one table: draws ask for thousands.
    table, whole = counted_cost(plan, cost), count(chosen)

    def share(layout: Layout) -> float:
        known = all(slot.label in table.by_label for slot in layout)
        return (table(layout) if known else count(layout)) / whole

    return share, lambda layouts: [share(layout) for layout in layouts]


def _timed(plan: RunPlan, cost: str, chosen: Layout) -> Shares:
    table, measurement = costs_of(plan, [cost])[cost], measurement_of(plan)

    def measured(layouts: Sequence[Layout]) -> list[float]:
        say(f"measuring {cost} of {len(layouts)} layouts and the chosen one, in turn")
        named = {f"{number}": layout for number, layout in enumerate(layouts)}
        times = measurement.times_ms(cost, {_CHOSEN: chosen, **named})
        return [times[name] / times[_CHOSEN] for name in named]

    if all(slot.label in table.by_label for slot in chosen):
        whole = table(chosen)
    else:  # its width was filled: a layout that the table knows is measured beside it
        known = (plan.candidates[0],) * len(plan.slots)
        whole = table(known) / measured([known])[0]
    return (lambda layout: table(layout) / whole), measured


def equal_opponents(
    plan: RunPlan, name: str, chosen: Architecture, taken: frozenset[Network], count: int
) -> list[Architecture]:
    """The opponents of a registered kind; NoOpponent where there is none of this cost."""
    opponents = OPPONENTS[name](contest(plan, chosen, taken, count))
    return [
        architecture_of(plan, Derived(one.layout, Evidence(method=one.words)), one.name, [])
        for one in opponents
    ]
