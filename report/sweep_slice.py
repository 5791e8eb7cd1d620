"""An objective over each setting of a sweep."""

from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from report.style import house_style, make_figure, margins
from report.sweep_axes import Setting, highest_shown, setting_axis, value_axis, value_label
from report.sweep_marks import mark_special, scaled, shared_legend
from report.sweep_rows import Objective, Row, done

MOST_PANELS, _PER_ROW = 12, 3


def slices(rows: Sequence[Row], settings: Sequence[Setting], index: int, goal: Objective) -> Figure:
    """One small panel per setting, at most 12; darker marks are later trials."""
    finished = sorted(done(rows), key=lambda row: row.number)
    shown = settings[:MOST_PANELS]
    lines = -(-len(shown) // _PER_ROW)
    columns = -(-len(shown) // lines)
    with house_style():
        figure = make_figure(7.6 if columns > 1 else 4.4, 2.45 * lines + 0.35)
        grid = figure.subplots(lines, columns, squeeze=False, sharey=True)
        margins(figure, left=0.8, right=0.2, top=0.35, bottom=0.85)
        figure.subplots_adjust(wspace=0.12, hspace=0.75)
        panels = list(grid.flat)
        for axes, one in zip(panels, shown, strict=False):
            _panel(axes, finished, one, index, goal)
        for axes in panels[len(shown) :]:
            axes.set_visible(False)
        for line in grid[:, 0]:
            line.set_ylabel(value_label(goal))
        shared_legend(figure)
    return figure


def _panel(axes: Axes, finished: Sequence[Row], one: Setting, index: int, goal: Objective) -> None:
    active = [row for row in finished if one.key in row.params]
    value_N = scaled(active, index, goal)
    every_N = scaled(finished, index, goal)
    top, low = highest_shown(every_N), float(every_N.min())
    room = 0.07 * (top - low) or 0.02 * abs(low) or 1.0
    place_N = one.spread(active, "x")
    age_N = np.array([row.number for row in active]) / max(finished[-1].number, 1)
    colour_N4 = matplotlib.colormaps["Blues"](0.3 + 0.65 * age_N)
    shown_N = value_N <= top
    axes.scatter(
        place_N[shown_N],
        value_N[shown_N],
        s=20,
        c=colour_N4[shown_N],
        edgecolors="#5a5a5a",
        linewidths=0.4,
    )
    if not shown_N.all():
        axes.scatter(
            place_N[~shown_N],
            np.full((~shown_N).sum(), top + room),
            s=22,
            marker="^",
            color=colour_N4[~shown_N],
            clip_on=False,
            label="above the axis",
        )
    best = finished[int(every_N.argmin())]
    mark_special(axes, active, place_N, np.minimum(value_N, top + room), best)
    setting_axis(axes, "x", one, active, room=26)
    axes.set_ylim(low - room, top + room)
    value_axis(axes.yaxis, goal)
    axes.grid(axis="y")
    if len(active) < len(finished):
        axes.set_title(f"{len(active)} trials only", fontsize=8, loc="left", pad=3)
