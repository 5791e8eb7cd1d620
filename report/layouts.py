"""The layouts of a run with what its files say of each, drawn as stacks, and sections about them.

L slots
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from report import html
from report.comparison import CHOSEN_ROLES, Comparison, Interval
from report.plotting import colours, text_on
from report.run_files import read_json, reading, seed_folders
from utils.text import compact

CHOSEN, OTHERS, FRONT = "architecture.json", "architectures", "pareto.json"
_COSTS = {"parameters": "parameters", "flops_per_token": "FLOPs per token"}
_NETS = {
    "soft": "pi's mixture of all candidates",
    "sampled": "layouts drawn from pi",
    "one_hot": "this layout, with the SuperNet's weights",
}
# Blocks that stand on each other; a taller layout goes on in a column beside.
ROWS = 16
_HIGHEST, _LOWEST, _ROOM = 28, 15, 250  # pixels of a block, and of a whole stack
_LETTERS = {"a": "attention", "d": "dense", "i": "identity"}


@dataclass(frozen=True)
class Palette:
    """The colour of each label on a page, and the height of a block."""

    hues: Mapping[str, str]
    block_px: int


@dataclass(frozen=True)
class Block:
    """A slot of a stack; `number` and `pi` are empty where they are not shown."""

    label: str
    title: str
    number: str
    pi: str
    hue: str
    ink: str


# Columns of blocks, each from below, and the slot that each column begins with.
Stack = list[tuple[int, list[Block]]]


def palette_of(layouts: Iterable[Sequence[str]], slots: int = 1) -> Palette:
    """Colours of the labels; the letter of a default candidate has its colour.

    Blocks fit the longest of the layouts, or `slots`.
    """
    layouts = list(layouts)
    kinds = {label: _LETTERS.get(label, label) for labels in layouts for label in labels}
    hue = colours([*dict.fromkeys(kinds.values())])
    rows = _rows(max([slots, *map(len, layouts)]))
    block_px = min(max(_ROOM // rows, _LOWEST), _HIGHEST)
    return Palette({label: hue[kind] for label, kind in kinds.items()}, block_px)


def stack_columns(slots: int) -> int:
    """The columns that a stack of so many slots takes."""
    return -(-slots // ROWS) or 1


def _rows(slots: int) -> int:
    """Blocks in a column, so that columns are about equally high."""
    return max(-(-slots // stack_columns(slots)), 1)


def stack(
    labels: Sequence[str],
    palette: Palette,
    pi_L: Sequence[float | None] | None = None,
    *,
    numbered: bool = True,
) -> Stack:
    """A layout as blocks, with the pi of each where it is known."""
    rows, blocks = _rows(len(labels)), []
    for slot, (label, pi) in enumerate(zip(labels, pi_L or [None] * len(labels), strict=True)):
        title = f"slot {slot}: {label}" + ("" if pi is None else f", pi {pi:.4f}")
        shown, number = "" if pi is None else f"{pi:.2f}", str(slot) if numbered else ""
        hue = palette.hues[label]
        blocks.append(Block(label, title, number, shown, hue, text_on(hue)))
    return [(first, blocks[first : first + rows]) for first in range(0, len(blocks), rows)]


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
        costs = [f"{compact(self.costs[key])} {unit}" for key, unit in _COSTS.items()
                 if key in self.costs]  # fmt: skip
        return "; ".join(part for part in (self.name, self.method, counts, *costs) if part)


@dataclass(frozen=True)
class Contender:
    """A layout and its figures: nats per test token (mean over `seeds`), latency, FLOPs.

    Intervals are of 95%. `less` is the chosen layout's nats less this one's, paired by seed where
    there are several, and `shown` what follows of all that are compared: the chosen one is
    `better`, `worse`, or `nothing` is shown. None is what no file says.
    """

    name: str
    role: str
    labels: tuple[str, ...]
    seeds: int = 0
    nats: float | None = None
    nats_interval: Interval | None = None
    less: float | None = None
    less_interval: Interval | None = None
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
    if (run_folder / FRONT).exists():
        # Layouts of fronts that were derived before the present one.
        front = read_json(run_folder / FRONT).get("front", [])
        files -= {path for path in files if path.match("pareto-*") and path.stem not in front}
    others = map(read_layout, sorted(files))
    return layout, [other for other in others if layout is None or other.name != layout.name]


def read_layout(path: Path) -> Layout:
    """Read the labels, the evidence and the costs of an architecture's file."""
    content = read_json(path)
    with reading(path):
        labels = tuple(str(slot.get("label") or slot["kind"]) for slot in content["slots"])
        evidence, costs = content.get("evidence") or {}, content.get("costs") or {}
        # A label that a budget made narrower has no pi of its own.
        pis = zip(evidence.get("pi") or [{}] * len(labels), labels, strict=True)
        pi_L = tuple(pi_C.get(label) for pi_C, label in pis)
        return Layout(
            # The file of another layout than the chosen one is known by its name on disk.
            name=str(content["name"]) if path.name == CHOSEN else path.stem,
            labels=labels,
            pi_L=pi_L if any(pi is not None for pi in pi_L) else None,
            method=evidence.get("method") or "",
            costs={key: float(costs[key]) for key in _COSTS if costs.get(key) is not None},
            caveats=tuple(evidence.get("caveats") or ()),
            gap=evidence.get("gap") or {},
        )


def compared(comparison: Comparison, layouts: Sequence[Layout]) -> list[Contender]:
    """A contender for each row of the comparison, in its order.

    A row whose layout has no file shows the letters of the table.
    """
    labels = {layout.name: layout.labels for layout in layouts}
    rows = comparison.rows.set_index("name")
    nats = rows["nats_per_token"]
    chosen = nats.get(comparison.chosen, math.nan)

    def contender(name: str, row: pd.Series) -> Contender:
        known = comparison.intervals.get(name, {})
        less = known.get("chosen_less_it")
        return Contender(
            name=name,
            role=str(row["role"]),
            labels=labels.get(name) or tuple(str(row["layout"]).split()),
            seeds=int(row["n"]),
            nats=_known(row["nats_per_token"]),
            nats_interval=comparison.nats_interval(name),
            less=None if name == comparison.chosen else _known(chosen - row["nats_per_token"]),
            less_interval=(less[1], less[2]) if less else None,
            shown=known.get("shown"),
            latency_ms=_known(row["latency_ms"]),
            latency_interval=comparison.latency_interval(name),
            flops=_known(row["flops_per_token"]),
        )

    return [contender(str(name), row) for name, row in rows.iterrows()]


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def uncompared(
    run_folder: Path, chosen: Layout | None, others: Sequence[Layout]
) -> list[Contender]:
    """Layouts that were not compared yet, with the nats of those that were retrained."""
    contenders = []
    for layout in [*([chosen] if chosen else []), *others]:
        folders = seed_folders(run_folder / "retrain" / layout.name)
        paths = [folder / "result.json" for folder in folders]
        tests = [read_json(path).get("test") for path in paths if path.exists()]
        nats = [test["nats_per_token"] for test in tests if test]
        contenders.append(
            Contender(
                name=layout.name,
                role="searched" if layout is chosen else "derived",
                labels=layout.labels,
                seeds=len(nats),
                nats=sum(nats) / len(nats) if nats else None,
                flops=layout.costs.get("flops_per_token"),
            )
        )
    return contenders


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
    """The chosen layout with the pi of each slot, what speaks against it, and its gap.

    The gap is that of validation nats of one candidate per slot beside those of the mixture.
    """
    gap, keys = layout.gap, ("nats_per_token", "standard_error")
    rows = [
        (False, [words, *(f"{gap[net][key]:.4f}" for key in keys)])
        for net, words in _NETS.items()
        if gap.get(net)
    ]
    head = [("net", ""), ("nats", "per validation token"), ("standard error", "over the text")]
    body = html.render(
        "derived.html.j2",
        layout=layout,
        stack=stack(layout.labels, palette, layout.pi_L),
        gap=html.Table(head, rows, left=1, label="the discretisation gap") if rows else None,
    )
    return html.Section("derived", "Derived layout", body)
