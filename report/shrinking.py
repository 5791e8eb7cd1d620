"""What a trained model can do without: the price of each block, and the subsets within the budget.

L blocks of the parent
"""

from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from report import html
from report.html import Column
from report.plotting import COSTS, INK, colours, framed, headline, png
from report.run_files import read_chosen, tight_layout
from utils.text import compact

_SHOWN = 12
# Columns of a block that are no cost.
_OF_BLOCK = ("block", "label", "kl_nats", "nats_more", "kept")
# A KL below this is drawn as this: its axis is logarithmic.
_LEAST_NATS = 1e-3


def read_shrinking(run_folder: Path) -> tuple[pd.DataFrame, pd.DataFrame] | None:
    """The blocks of the parent, each with its price and whether it is kept, and the subsets."""
    chosen = read_chosen(run_folder)
    path = run_folder / "architectures" / f"{chosen.get('name')}-subsets.csv"
    if not path.exists():
        return None
    blocks, subsets = pd.read_csv(path.with_name(f"{chosen['name']}-blocks.csv")), pd.read_csv(path)
    blocks["kept"] = [chosen["blocks"][place]["kind"] != "identity" for place in blocks["block"]]
    return blocks, subsets


def prices_figure(blocks: pd.DataFrame) -> Figure:
    """The parent as a stack, the input below: what dropping each block costs, and what it takes."""
    costs = _costs(blocks)[:1]
    hues = colours([*dict.fromkeys(blocks["label"])])
    panels = [
        ("kl_nats", "KL from the parent without it, nats"),
        *((name, COSTS.get(name, name)) for name in costs),
    ]
    height = 1.1 + 0.26 * len(blocks)
    with framed(7.6, height, columns=len(panels), left=1.3, sharey=True) as (figure, grid):
        for axes, (name, words) in zip(grid[0], panels, strict=True):
            _bars(axes, blocks, name, hues)
            axes.set_xlabel(words)
        first: Axes = grid[0, 0]
        first.set_xscale("log")
        first.xaxis.set_major_formatter("{x:g}")
        first.xaxis.set_minor_formatter("")
        names = zip(blocks["block"], blocks["label"], strict=True)
        first.set_yticks(blocks["block"], [f"{number} {label}" for number, label in names])
        headline(figure, "Which blocks can go? Pale ones were dropped")
    return figure


def _costs(blocks: pd.DataFrame) -> list[str]:
    return [str(name) for name in blocks if name not in _OF_BLOCK]


def _bars(axes: Axes, blocks: pd.DataFrame, name: str, hues: dict[str, str]) -> None:
    value_L = blocks[name].clip(lower=_LEAST_NATS) if name == "kl_nats" else blocks[name]
    colour_L = [hues[label] for label in blocks["label"]]
    bars = axes.barh(blocks["block"], value_L, color=colour_L, edgecolor=INK, linewidth=0.5)
    for bar, kept in zip(bars, blocks["kept"], strict=True):
        bar.set_alpha(1.0 if kept else 0.3)


def shrinking_section(run_folder: Path) -> html.Section | None:
    """What speaks for the blocks that stay; None where nothing shrank."""
    if (found := read_shrinking(run_folder)) is None:
        return None
    (blocks, subsets), shown = found, found[1][:_SHOWN]
    columns = [
        Column("blocks", "", "layout", tight_layout),
        Column("KL", "nats", "kl_nats", "{:.4f}".format),
        Column("above the nearest", "nats", "above_nearest", "{:.4f}".format),
        Column("error", "of that", "above_nearest_error", "{:.4f}".format),
        Column("loss", "training text", "nats_per_token", "{:.4f}".format),
        *(Column(name, "", name, compact) for name in _costs(blocks)),
    ]
    table = html.table_of(shown, columns, shown.index == 0, left=1, label="subsets")
    notes = [
        f"{len(subsets)} subsets within the budget were scored by KL from the parent, on training "
        f"text; the table shows {len(shown)} of them, the chosen one first. i: a dropped block.",
    ]
    alt = "Two bars for each block of the parent: the KL without it, and what it takes of a budget"
    picture = html.Picture(png(prices_figure(blocks)), "What each block is worth alone", alt)
    return html.exhibit("blocks", "Which blocks can go", table, notes=notes, pictures=[picture])
