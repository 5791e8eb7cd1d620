"""Opponents of a run's chosen layout that cost what it costs: counted, or timed beside it."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

from model import Architecture, Evidence, Layout, Network, layout_letters
from nas.costs.latency import unchecked
from nas.costs.workloads import WORKLOADS
from nas.derivation import Derived
from nas.opponents import OPPONENTS, Contest, NoOpponent
from pipeline.context import RunPlan
from pipeline.costs import costs_of, counted_cost, measurement_of, table_key
from pipeline.derive import architecture_of, request_of
from pipeline.run_files import reading
from utils.files import read_object, write_whole
from utils.screen import say

FILE = "opponents.json"
# A name that no layout has.
_CHOSEN = "the chosen one"


def equal_cost(plan: RunPlan, chosen: Architecture) -> str:
    """The cost that opponents share with the chosen layout; `auto` is what it was derived for."""
    asked = plan.experiment.compare.equal
    if asked != "auto":
        return asked
    timed = [time.name for time in chosen.costs.times] if chosen.costs is not None else []
    return "latency" if "latency" in timed else next(iter(timed), "flops")


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
    if not whole:
        raise NoOpponent(
            f"compare.equal: {layout_letters(chosen)} has a {cost} of 0, which nothing else can be "
            "a multiple of; give another cost"
        )

    def share(layout: Layout) -> float:
        known = all(slot.label in table.by_label for slot in layout)
        return (table(layout) if known else count(layout)) / whole

    return share, lambda layouts: [share(layout) for layout in layouts]


def _timed(plan: RunPlan, cost: str, chosen: Layout) -> Shares:
    table, measured = costs_of(plan, [cost])[cost], _MeasuredShares(plan, cost, chosen)
    if all(slot.label in table.by_label for slot in chosen):
        whole = table(chosen)
    else:  # its width was filled: a layout that the table knows is measured beside it
        known = (plan.candidates[0],) * len(plan.slots)
        whole = table(known) / measured([known])[0]
    return (lambda layout: table(layout) / whole), measured


class _MeasuredShares:
    """Times of layouts as multiples of the chosen one's, kept in RUN/opponents.json.

    Measured again they would differ a little, and a comparison that goes on would meet others.
    """

    def __init__(self, plan: RunPlan, cost: str, chosen: Layout) -> None:
        self._measurement, self._cost, self._chosen = measurement_of(plan), cost, chosen
        self._path = plan.run_dir / FILE
        slots = [slot.model_dump(mode="json") for slot in chosen]
        key = {**table_key(plan), "cost": cost, "chosen": slots}
        self._key = json.loads(json.dumps(key))  # as the file has it

    def __call__(self, layouts: Sequence[Layout]) -> list[float]:
        with reading(self._path):
            kept = read_object(self._path, "") if self._path.exists() else {}
            shares = {**kept["shares"]} if kept.get("key") == self._key else {}
        layout_of = {layout_letters(layout): layout for layout in layouts}
        missing = {name: layout for name, layout in layout_of.items() if name not in shares}
        if missing:
            turns = f"in turn{unchecked(self._measurement.shapes.device)}"
            say(f"measuring {self._cost} of {len(missing)} layouts and the chosen one, {turns}")
            times = self._measurement.times_ms(self._cost, {_CHOSEN: self._chosen, **missing})
            shares |= {name: times[name] / times[_CHOSEN] for name in missing}
            content = {"key": self._key, "shares": shares}
            write_whole(self._path, json.dumps(content, indent=1) + "\n")
        return [shares[layout_letters(layout)] for layout in layouts]


def equal_opponents(
    plan: RunPlan, name: str, chosen: Architecture, taken: frozenset[Network], count: int
) -> list[tuple[Architecture, float]]:
    """The opponents of a registered kind, each with its cost as a multiple of the chosen one's.

    NoOpponent where there is none of this cost.
    """
    opponents = OPPONENTS[name](contest(plan, chosen, taken, count))
    return [
        (
            architecture_of(plan, Derived(one.layout, Evidence(method=one.words)), one.name, []),
            one.share,
        )
        for one in opponents
    ]
