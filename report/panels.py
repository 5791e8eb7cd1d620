"""Small panels side by side, one for each slot: pi over the steps."""

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from report.plotting import (
    FAINT,
    colours,
    dashes,
    house_style,
    make_figure,
    margins,
    plain,
    step_axis,
)
from report.run_files import Trajectory
from utils.text import shorten

# More than a panel has pixels.
MOST_POINTS = 400
_WIDE = 2.0  # inches


def panel_columns(slots: int) -> int:
    """How many panels stand side by side, so that they stay readable and fill their rows."""
    for most, columns in ((4, slots), (6, 3), (12, 4), (24, 6)):
        if slots <= most:
            return columns
    return 8


def slot_panels(
    slots: int, handles: Sequence[Line2D], draw: Callable[[Axes, int, bool], None]
) -> Figure:
    """A figure with one panel per slot and a legend above them.

    Args:
        slots: how many.
        handles: of the legend.
        draw: called with the axes, the slot, and whether panels are wide.
    """
    columns = panel_columns(slots)
    lines = -(-slots // columns)
    panel = 5.4 if columns == 1 else 9.6 / columns if columns > 3 else 3.0
    width, height = 0.65 + panel * columns + 0.15, max(0.95, 0.55 * panel)
    with house_style():
        legend_columns = max(1, min(len(handles), int(width / 1.45)))
        legend_height = 0.24 * -(-len(handles) // legend_columns) + 0.14
        figure = make_figure(width, legend_height + lines * (height + 0.3) + 0.44)
        axes_grid = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
        margins(figure, left=0.65, right=0.15, top=legend_height + 0.2, bottom=0.5)
        figure.subplots_adjust(wspace=0.1, hspace=0.3 / height)
        for slot, axes in enumerate(axes_grid.flat):
            if slot >= slots:
                axes.remove()
                continue
            draw(axes, slot, panel >= _WIDE)
            axes.tick_params(labelbottom=slot + columns >= slots)
            if slot + columns >= slots:
                axes.set_xlabel("step")
            if slot % columns == 0:
                axes.set_ylabel("pi")
        figure.legend(handles=handles, loc="upper center", ncols=legend_columns, borderpad=0.2)
    return figure


def line_handles(labels: Sequence[str]) -> list[Line2D]:
    """A legend's lines of the candidates, and of uniform."""
    hue = colours(labels)
    handles = [
        Line2D([], [], color=hue[label], linestyle=dashes(i), label=shorten(plain(label), 18))
        for i, label in enumerate(labels)
    ]
    handles.append(Line2D([], [], color=FAINT, linestyle=":", linewidth=0.9, label="uniform"))
    return handles


def mark_start(axes: Axes, trajectory: Trajectory, colour: str = FAINT) -> None:
    """A line at alpha's first step, where that is not the first of all."""
    if _starts_late(trajectory):
        axes.axvline(trajectory.alpha_start, color=colour, linestyle="--", linewidth=0.9)


def start_handles(trajectory: Trajectory) -> list[Line2D]:
    """A legend's line for it."""
    if not _starts_late(trajectory):
        return []
    return [Line2D([], [], color=FAINT, linestyle="--", linewidth=0.9, label="alpha starts")]


def _starts_late(trajectory: Trajectory) -> bool:
    return trajectory.moves and trajectory.alpha_start > int(trajectory.step_N[0])


def pi_axes(
    axes: Axes, step_N: np.ndarray, labels: Sequence[str], slot: int, words: str, wide: bool
) -> None:
    """The scales of a panel, the line of uniform, and a title that begins with the slot."""
    axes.axhline(1 / len(labels), color=FAINT, linestyle=":", linewidth=0.9)
    title = f"{'slot ' if wide else ''}{slot}: {words}"
    axes.set_title(title, loc="left", fontsize=8.5 if wide else 7.5, pad=3)
    axes.set_ylim(-0.03, 1.03)
    axes.set_yticks([0, 0.5, 1], ["0", "0.5", "1"])
    axes.grid(axis="y")
    step_axis(axes, float(step_N[0]), float(step_N[-1]), ticks=5 if wide else 3)


def short_name(label: str, wide: bool) -> str:
    """A candidate in a panel's title."""
    return shorten(plain(label), 24 if wide else 11)
