"""The figure of arms: each layout as a row of blocks beside its perplexity by the first arm's."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from benchmarks.arms import blocks
from model.blocks import BLOCKS
from report.plotting import FAINT, HUES, INK, colours, framed, text_on

_ROW_INCHES = 0.46
_PLAIN = {"dense": "feed-forward"}


@dataclass(frozen=True)
class ArmRow:
    """An arm beside the first one: differences by seed, their mean and 95% half-width."""

    name: str
    layout: str
    less_nats: tuple[float, ...] = ()
    interval_nats: tuple[float, float] | None = None
    latency_x: float | None = None
    is_chosen: bool = False


def arms_figure(rows: Sequence[ArmRow], margin_nats: float | None = None) -> Figure:
    """Blocks on the left, differences with their 95% intervals on the right, all in `rows`' order.

    The first row is what the others are compared with, and has no interval; a band reaches up to
    the margin.
    """
    height = 1.2 + _ROW_INCHES * len(rows)
    with framed(
        9.0, height, 1, 2, left=1.75, right=0.25, top=0.4, bottom=0.75,
        sharey=True, width_ratios=(1.25, 1.0),
    ) as (figure, grid):  # fmt: skip
        figure.subplots_adjust(wspace=0.28)
        _draw_blocks(grid[0, 0], rows)
        _draw_differences(grid[0, 1], rows, margin_nats)
    return figure


def _draw_blocks(axes: Axes, rows: Sequence[ArmRow]) -> None:
    name_of = {block.letter: name for name, block in BLOCKS.items()}
    colour_of = colours(list(BLOCKS))
    for place, row in enumerate(rows):
        for at, letter in enumerate(row.layout):
            colour = colour_of[name_of[letter]]
            axes.add_patch(Rectangle((at, place - 0.36), 0.92, 0.72, facecolor=colour))
            axes.text(
                at + 0.46, place, letter, ha="center", va="center", color=text_on(colour),
                fontsize=9,
            )  # fmt: skip
    axes.set_xlim(-0.2, max(blocks(row.layout) for row in rows) + 0.2)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_yticks(range(len(rows)), [_words(row) for row in rows])
    axes.tick_params(left=False)
    axes.set_xticks([])
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    kinds = dict.fromkeys(name_of[letter] for row in rows for letter in row.layout)
    words = ", ".join(f"{BLOCKS[kind].letter}: {_PLAIN.get(kind, kind)}" for kind in kinds)
    axes.set_xlabel(f"{words} (text enters on the left)", loc="left")
    axes.set_title("Which blocks, in which order?", loc="left")


def _words(row: ArmRow) -> str:
    return row.name if row.latency_x is None else f"{row.name}\n{row.latency_x:.2f}x latency"


def _draw_differences(axes: Axes, rows: Sequence[ArmRow], margin_nats: float | None) -> None:
    axes.axvline(0, color=INK, linewidth=0.9)
    if margin_nats is not None:
        axes.axvspan(0, _percent(margin_nats), color=FAINT, alpha=0.18, linewidth=0)
    for place, row in enumerate(rows):
        colour = HUES["chosen"] if row.is_chosen else HUES["baseline"]
        below = place + 0.26
        less = [_percent(nats) for nats in row.less_nats]
        axes.plot(less, [below] * len(less), ".", color=FAINT, markersize=5)
        if row.interval_nats is None:
            # A single training has no interval; the first row is what it is beside.
            at, hue = (less, colour) if less else ([0.0], INK)
            axes.plot(at, [place] * len(at), "o", color=hue, markersize=5)
            continue
        mean, half = row.interval_nats
        ends = [_percent(mean - half), _percent(mean + half)]
        axes.plot(ends, [place, place], color=colour, linewidth=2.0)
        axes.plot([_percent(mean)], [place], "o", color=colour, markersize=6)
    axes.tick_params(left=False, labelleft=False)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:+g}%" if x else "0%")
    said = "(bars: 95%; dots: seeds"
    said += "" if margin_nats is None else f"; grey: {_percent(margin_nats):.0f}% worse"
    axes.set_xlabel(f"test perplexity relative to {rows[0].name}\n{said})", loc="left")
    axes.set_title("Which predicts best? (left is better)", loc="left")


def _percent(nats: float) -> float:
    """Perplexity, in percent more than where the nats are equal."""
    return 100 * math.expm1(nats)
