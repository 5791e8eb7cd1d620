"""The layouts of a run with what its files say of each, and the page's sections about them.

L slots
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from report import html
from report.comparison import CHOSEN_ROLES, Comparison, Interval
from report.run_files import read_json, reading, seed_folders
from report.stack import Palette, stack, stack_columns
from utils.text import compact

CHOSEN, OTHERS, FRONT = "architecture.json", "architectures", "pareto.json"
_COSTS = (("parameters", "parameters"), ("flops_per_token", "FLOPs per token"))
_NETS = {
    "soft": "pi's mixture of all candidates",
    "sampled": "layouts drawn from pi",
    "one_hot": "this layout, with the SuperNet's weights",
}


@dataclass(frozen=True)
class Layout:
    """A layout: the label of each slot, the pi each was chosen with, and what is known of it.

    `gap` is what choosing one candidate per slot costs, as the derivation measured it.
    """

    name: str
    labels: tuple[str, ...]
    pi_L: tuple[float | None, ...] | None = None
    method: str = ""
    costs: Mapping[str, float] = field(default_factory=dict)
    caveats: tuple[str, ...] = ()
    gap: Mapping[str, Any] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """Name, method, kinds and costs in one line."""
        kinds = dict.fromkeys(self.labels)
        counts = ", ".join(f"{self.labels.count(label)} {label}" for label in kinds)
        costs = [f"{compact(self.costs[key])} {unit}" for key, unit in _COSTS if key in self.costs]
        return "; ".join(part for part in (self.name, self.method, counts, *costs) if part)


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
        """True of the layout that the run is about."""
        return self.role in CHOSEN_ROLES


def read_layouts(run_folder: Path) -> tuple[Layout | None, list[Layout]]:
    """The chosen layout, where there is one, and the others of the run.

    Raises:
        ValueError: a file is broken; the message names it.
    """
    chosen = run_folder / CHOSEN
    layout = read_layout(chosen) if chosen.exists() else None
    files = set((run_folder / OTHERS).glob("*.json"))
    summary = run_folder / FRONT
    if summary.exists():
        # Layouts of fronts that were derived before the present one.
        front = read_json(summary).get("front", [])
        files -= {path for path in files if path.match("pareto-*") and path.stem not in front}
    others = map(read_layout, sorted(files))
    return layout, [other for other in others if layout is None or other.name != layout.name]


def read_layout(path: Path) -> Layout:
    """Read the labels, the evidence and the costs of an architecture's file."""
    content = read_json(path)
    with reading(path):
        labels = tuple(str(slot.get("label") or slot["kind"]) for slot in content["slots"])
        evidence = content.get("evidence") or {}
        # A label that a budget made narrower has no pi of its own.
        pis = zip(evidence.get("pi") or [{}] * len(labels), labels, strict=True)
        pi_L = tuple(pi_C.get(label) for pi_C, label in pis)
        return Layout(
            # The file of another layout than the chosen one is known by its name on disk.
            name=str(content["name"]) if path.name == CHOSEN else path.stem,
            labels=labels,
            pi_L=pi_L if any(pi is not None for pi in pi_L) else None,
            method=evidence.get("method") or "",
            costs={
                key: float(value)
                for key, value in (content.get("costs") or {}).items()
                if isinstance(value, int | float)
            },
            caveats=tuple(evidence.get("caveats") or ()),
            gap=evidence.get("gap") or {},
        )


def compared(comparison: Comparison, layouts: Sequence[Layout]) -> list[Contender]:
    """A contender for each row of the comparison, in its order.

    A row whose layout has no file shows the letters of the table.
    """
    labels = {layout.name: layout.labels for layout in layouts}
    contenders = [_of_row(row, comparison, labels) for _, row in comparison.rows.iterrows()]
    chosen = next((one for one in contenders if one.is_chosen), None)
    if chosen is None or chosen.nats is None:
        return contenders
    return [
        one if one is chosen or one.nats is None else replace(one, less=chosen.nats - one.nats)
        for one in contenders
    ]


def _of_row(
    row: pd.Series, comparison: Comparison, labels: Mapping[str, tuple[str, ...]]
) -> Contender:
    def number(key: str) -> float | None:
        value = float(row[key])
        return value if math.isfinite(value) else None

    name = str(row["name"])
    known = comparison.intervals.get(name, {})
    less = known.get("chosen_less_it")
    return Contender(
        name=name,
        role=str(row["role"]),
        labels=labels.get(name) or tuple(str(row["layout"]).split()),
        seeds=int(row["n"]),
        nats=number("nats_per_token"),
        nats_interval=comparison.nats_interval(name),
        less_interval=(less[1], less[2]) if less else None,
        p=known.get("p"),
        shown=known.get("shown"),
        latency_ms=number("latency_ms"),
        latency_interval=comparison.latency_interval(name),
        flops=number("flops_per_token"),
    )


def uncompared(
    run_folder: Path, chosen: Layout | None, others: Sequence[Layout]
) -> list[Contender]:
    """Layouts that were not compared yet, with the nats of those that were retrained."""
    shown = [(chosen, "searched")] if chosen else []
    shown += [(other, "derived") for other in others]
    return [_trained(run_folder, layout, role) for layout, role in shown]


def _trained(run_folder: Path, layout: Layout, role: str) -> Contender:
    folders = seed_folders(run_folder / "retrain" / layout.name)
    paths = [folder / "result.json" for folder in folders]
    tests = [read_json(path).get("test") for path in paths if path.exists()]
    nats = [test["nats_per_token"] for test in tests if test]
    return Contender(
        name=layout.name,
        role=role,
        labels=layout.labels,
        seeds=len(nats),
        nats=sum(nats) / len(nats) if nats else None,
        flops=layout.costs.get("flops_per_token"),
    )


def in_order_of_interest(contenders: Sequence[Contender], reference: str) -> list[Contender]:
    """The chosen layout, the reference, then the others by nats, or else by FLOPs; low first."""

    def place(one: Contender) -> tuple[bool, bool, float, float]:
        nats, flops = (math.inf if value is None else value for value in (one.nats, one.flops))
        return not one.is_chosen, one.name != reference, nats, flops

    return sorted(contenders, key=place)


def layouts_section(contenders: Sequence[Contender], palette: Palette) -> html.Section | None:
    """Every layout of the run as a stack; None where there is one at most."""
    if len(contenders) < 2:
        return None
    drawn = [(one, stack(one.labels, palette, numbered=False)) for one in contenders]
    wide = any(stack_columns(len(one.labels)) > 1 for one in contenders)
    body = html.render("layouts.html.j2", drawn=drawn, wide=wide)
    return html.Section("layouts", "All layouts", body)


def derived_section(layout: Layout, palette: Palette) -> html.Section:
    """The chosen layout with the pi of each slot, what speaks against it, and its gap."""
    body = html.render(
        "derived.html.j2",
        layout=layout,
        stack=stack(layout.labels, palette, layout.pi_L),
        gap=_gap(layout.gap),
    )
    return html.Section("derived", "Derived layout", body)


def _gap(gap: Mapping[str, Any]) -> html.Table | None:
    """Validation nats of one candidate per slot beside those of the mixture."""
    rows = [
        (False, [words, *(f"{gap[net][key]:.4f}" for key in ("nats_per_token", "standard_error"))])
        for net, words in _NETS.items()
        if gap.get(net)
    ]
    head = [("net", ""), ("nats", "per validation token"), ("standard error", "over the text")]
    return html.Table(head, rows, left=1, label="the discretisation gap") if rows else None
