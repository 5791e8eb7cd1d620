"""The layouts of a run with what its files say of each, drawn as stacks, and sections about them.

L blocks
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from report import html
from report.comparison import Comparison
from report.plotting import colours
from report.run_files import CHOSEN, seed_folders
from utils.files import read_object
from utils.text import compact, layout_title

OTHERS = "architectures"
_COSTS = {"parameters": "parameters", "flops_per_token": "FLOPs per token"}
_NETS = {
    "soft": "pi's mixture of all candidates",
    "sampled": "layouts drawn from pi",
    "one_hot": "this layout, with the SuperNet's weights",
}
# What is known of a layout that is not compared, and what only a comparison says (`Comparison`).
_KNOWN = [
    *("name", "title", "role", "is_chosen", "labels", "n", "perplexity", "nats_per_token"),
    *("nats_low", "nats_high", "less", "less_low", "less_high", "shown"),
    *("latency_ms", "latency_low", "latency_high", "flops_per_token"),
]
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
class Stack:
    """A layout as blocks on each other, with the pi of each where it is known."""

    labels: Sequence[str]
    palette: Palette
    pi_L: Sequence[float | None] | None = None
    numbered: bool = True

    @property
    def rows(self) -> int:
        """Blocks in a column."""
        return _rows(len(self.labels))


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


@dataclass(frozen=True)
class DrawnLayout:
    """A layout: the label of each block, the pi each was chosen with, and what is known of it.

    `gap` is what choosing one candidate per block costs, as the derivation measured it; `budget`
    its limits, and how much it takes of those of time.
    """

    name: str
    title: str
    labels: tuple[str, ...]
    pi_L: tuple[float | None, ...] | None = None
    method: str = ""
    budget: str = ""
    costs: Mapping[str, float] = field(default_factory=dict)
    caveats: tuple[str, ...] = ()
    gap: Mapping[str, Any] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """What it is, name, method and costs in one line."""
        costs = [f"{compact(self.costs[key])} {unit}" for key, unit in _COSTS.items()
                 if key in self.costs]  # fmt: skip
        return "; ".join(
            part for part in (self.title, self.name, self.method, self.budget, *costs) if part
        )


def read_layouts(run_folder: Path) -> tuple[DrawnLayout | None, list[DrawnLayout]]:
    """The chosen layout, where there is one, and the others of the run."""
    chosen = run_folder / CHOSEN
    layout = read_layout(chosen) if chosen.exists() else None
    others = map(read_layout, sorted((run_folder / OTHERS).glob("*.json")))
    return layout, [other for other in others if layout is None or other.name != layout.name]


def read_layout(path: Path) -> DrawnLayout:
    """Read the labels, the evidence and the costs of an architecture's file."""
    content = read_object(path)
    labels = tuple(str(slot.get("label") or slot["kind"]) for slot in content["blocks"])
    # The file of another layout than the chosen one is known by its name on disk.
    name = str(content["name"]) if path.name == CHOSEN else path.stem
    evidence, costs = content.get("evidence") or {}, content.get("costs") or {}
    # A label that a budget made narrower has no pi of its own.
    pis = zip(evidence.get("pi") or [{}] * len(labels), labels, strict=True)
    pi_L = tuple(pi_C.get(label) for pi_C, label in pis)
    times = [f"{one['name']} measured at {one['ms'] / one['most_ms']:.0%} of it" for one in
             costs.get("times") or ()]  # fmt: skip
    budget = [f"budget: {evidence['budget']}", *times] if evidence.get("budget") else []
    return DrawnLayout(
        name=name,
        title=layout_title([slot["kind"] for slot in content["blocks"]], name),
        labels=labels,
        pi_L=pi_L if any(pi is not None for pi in pi_L) else None,
        method=evidence.get("method") or "",
        budget=", ".join(budget),
        costs={key: float(costs[key]) for key in _COSTS if costs.get(key) is not None},
        caveats=tuple(evidence.get("caveats") or ()),
        gap=evidence.get("gap") or {},
    )


def compared(comparison: Comparison, layouts: Sequence[DrawnLayout]) -> pd.DataFrame:
    """The rows of a comparison with the `labels` of each layout.

    A row whose layout has no file shows the letters of the table.
    """
    known = {layout.name: layout.labels for layout in layouts}
    own = zip(comparison.rows["name"], comparison.rows["layout"], strict=True)
    labels = [known.get(name) or tuple(letters.split()) for name, letters in own]
    return comparison.rows.assign(labels=pd.Series(labels, comparison.rows.index))


def uncompared(
    run_folder: Path, layouts: Sequence[DrawnLayout], chosen: DrawnLayout | None
) -> pd.DataFrame:
    """The same of layouts that were not compared yet, with nats where they were retrained."""
    rows = []
    for layout in layouts:
        folders = seed_folders(run_folder / "retrain" / layout.name)
        paths = [folder / "result.json" for folder in folders]
        tests = [read_object(path).get("test") for path in paths if path.exists()]
        nats = [test["nats_per_token"] for test in tests if test]
        mean = sum(nats) / len(nats) if nats else math.nan
        rows.append(
            {
                **{key: getattr(layout, key) for key in ("name", "title", "labels")},
                "role": "chosen" if layout is chosen else "derived",
                "is_chosen": layout is chosen,
                "n": len(nats),
                "perplexity": math.exp(mean),
                "nats_per_token": mean,
                "flops_per_token": layout.costs.get("flops_per_token", math.nan),
            }
        )
    return pd.DataFrame(rows, columns=_KNOWN)


def in_order_of_interest(rows: pd.DataFrame, reference: str) -> pd.DataFrame:
    """The chosen layout, the reference, then the others by nats, or else by FLOPs; low first."""
    rows = rows.assign(is_reference=rows["name"] == reference)
    return rows.sort_values(
        ["is_chosen", "is_reference", "nats_per_token", "flops_per_token"],
        ascending=[False, False, True, True],
    )


def layouts_section(rows: pd.DataFrame, palette: Palette) -> html.Section | None:
    """Every layout of the run as a stack; None where there is one at most."""
    if len(rows) < 2:
        return None
    records = rows.to_dict("records")
    drawn = [(row, Stack(row["labels"], palette, numbered=False)) for row in records]
    wide = any(stack_columns(len(labels)) > 1 for labels in rows["labels"])
    body = html.render("layouts.html.j2", drawn=drawn, wide=wide)
    return html.Section("layouts", "All layouts", body)


def derived_section(layout: DrawnLayout, palette: Palette) -> html.Section:
    """The chosen layout with the pi of each block, what speaks against it, and its gap.

    The gap is that of validation nats of one candidate per block beside those of the mixture.
    """
    gap, keys = layout.gap, ("nats_per_token", "standard_error")
    rows = [
        (False, [words, *(f"{gap[net][key]:.4f}" for key in keys)])
        for net, words in _NETS.items()
        if gap.get(net)
    ]
    head = [("network", ""), ("nats", "per validation token"), ("standard error", "over the text")]
    body = html.render(
        "derived.html.j2",
        layout=layout,
        stack=Stack(layout.labels, palette, layout.pi_L),
        gap=html.Table(head, rows, left=1, label="the discretisation gap") if rows else None,
    )
    return html.Section("derived", "Derived layout", body)
