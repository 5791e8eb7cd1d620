"""The layouts that stand beside each other on the page, with what their files say of each.

L slots
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from report.architectures import Layout, as_number
from report.comparison import CHOSEN_ROLES, Comparison, Interval, interval_of
from report.run_files import read_json, seed_folders


@dataclass(frozen=True)
class Contender:
    """A layout and its figures: nats per test token (mean over `seeds`), latency, FLOPs.

    Intervals are of 95%. `less` is the chosen layout's nats less this one's, paired by seed where
    there are several; `p` is of it, adjusted for all that are compared, and `shown` what follows:
    the chosen one is `better`, `worse`, or `nothing` is shown. None is what no file says.
    """

    name: str
    role: str
    labels: tuple[str, ...]
    seeds: int = 0
    nats: float | None = None
    nats_interval: Interval | None = None
    less: float | None = None
    less_interval: Interval | None = None
    p: float | None = None
    shown: str | None = None
    latency_ms: float | None = None
    latency_interval: Interval | None = None
    flops: float | None = None

    @property
    def is_chosen(self) -> bool:
        """Whether the run is about this layout."""
        return self.role in CHOSEN_ROLES


def compared(comparison: Comparison, layouts: Sequence[Layout]) -> list[Contender]:
    """A contender for each row of the comparison, in its order.

    A row whose layout has no file shows the letters of the table.
    """
    by_name = {layout.name: layout for layout in layouts}
    contenders = [
        _of_row(row, comparison, by_name.get(str(row["name"])))
        for _, row in comparison.rows.iterrows()
    ]
    chosen = next((one for one in contenders if one.is_chosen), None)
    if chosen is None or chosen.nats is None:
        return contenders
    return [
        one if one is chosen or one.nats is None else replace(one, less=chosen.nats - one.nats)
        for one in contenders
    ]


def _of_row(row: pd.Series, comparison: Comparison, layout: Layout | None) -> Contender:
    name = str(row["name"])
    known = comparison.intervals.get(name)
    intervals = known if isinstance(known, Mapping) else {}
    words = str(row["layout"]).split()
    return Contender(
        name=name,
        role=str(row["role"]),
        labels=layout.labels if layout else tuple(words) or ("?",),
        seeds=int(row["n"]) if math.isfinite(row["n"]) else 0,
        nats=as_number(float(row["nats_per_token"])),
        nats_interval=comparison.nats_interval(name),
        less_interval=interval_of(intervals.get("chosen_less_it"), numbers=3),
        p=as_number(intervals.get("p")),
        shown=shown
        if (shown := intervals.get("shown")) in ("better", "worse", "nothing")
        else None,
        latency_ms=as_number(float(row["latency_ms"])),
        latency_interval=comparison.latency_interval(name),
        flops=as_number(float(row["flops_per_token"])),
    )


def uncompared(
    run_folder: Path, chosen: Layout | None, others: Sequence[Layout]
) -> list[Contender]:
    """Layouts that were not compared yet, with the nats of those that were retrained."""
    shown = [(chosen, "searched")] if chosen else []
    shown += [(other, "derived") for other in others]
    return [_trained(run_folder, layout, role) for layout, role in shown]


def _trained(run_folder: Path, layout: Layout, role: str) -> Contender:
    folders = seed_folders(run_folder / "retrain" / Path(layout.name).name)
    paths = [folder / "result.json" for folder in folders]
    tests = [read_json(path).get("test") for path in paths if path.exists()]
    nats = [as_number(test.get("nats_per_token")) for test in tests if isinstance(test, dict)]
    known = [value for value in nats if value is not None]
    return Contender(
        name=layout.name,
        role=role,
        labels=layout.labels,
        seeds=len(known),
        nats=sum(known) / len(known) if known else None,
        flops=layout.costs.get("flops_per_token"),
    )


def in_order_of_interest(contenders: Sequence[Contender], reference: str) -> list[Contender]:
    """The chosen layout, the reference, then the others by nats, or else by FLOPs; low first."""

    def place(one: Contender) -> tuple[bool, bool, float, float]:
        nats, flops = (math.inf if value is None else value for value in (one.nats, one.flops))
        return not one.is_chosen, one.name != reference, nats, flops

    return sorted(contenders, key=place)
