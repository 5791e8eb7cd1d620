"""Every trial of a sweep in order, and the best so far."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from report.style import FAINT, house_style, make_figure, margins
from report.sweep_axes import highest_shown, value_axis, value_label
from report.sweep_marks import BASELINE, BEST, FAILED, POINT, scaled, shared_legend
from report.sweep_rows import Objective, Row, baseline_of, done


def history(rows: Sequence[Row], objectives: Sequence[Objective]) -> Figure:
    """One panel per objective; trials without a value stand below the axis' lowest value."""
    with house_style():
        figure = make_figure(7.6, 0.9 + 2.7 * len(objectives))
        panels = figure.subplots(len(objectives), 1, sharex=True, squeeze=False)[:, 0]
        margins(figure, left=0.85, right=0.2, top=0.5, bottom=0.5)
        for index, (axes, goal) in enumerate(zip(panels, objectives, strict=True)):
            _panel(axes, rows, index, goal)
        panels[-1].set_xlabel("trial")
        panels[-1].xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
        shared_legend(figure)
    return figure


def _panel(axes: Axes, rows: Sequence[Row], index: int, goal: Objective) -> None:
    finished = sorted(done(rows), key=lambda row: row.number)
    number = np.array([row.number for row in finished])
    value = scaled(finished, index, goal)
    axes.set_ylabel(value_label(goal))
    axes.grid(axis="y")
    _without_value(axes, rows)
    if not len(value):
        axes.text(0.5, 0.5, "no trial has finished", ha="center", transform=axes.transAxes)
        axes.set_yticks([])
        return
    top = highest_shown(value)
    low = float(value.min())
    room = 0.08 * (top - low) or 0.02 * abs(low) or 1.0
    inside = value <= top
    axes.plot(
        number[inside], value[inside], "o", color=POINT, markersize=4, alpha=0.75, label="finished"
    )
    if not inside.all():
        axes.plot(
            number[~inside], np.full((~inside).sum(), top + room), "^", color=POINT, markersize=6,
            clip_on=False, label="above the axis",
        )  # fmt: skip
    axes.step(number, np.minimum.accumulate(value), where="post", color=BEST, label="best so far")
    baseline = baseline_of(rows)
    if baseline is not None and baseline.values is not None:
        level = goal.scaled(baseline.values[index])
        axes.axhline(level, color=BASELINE, linestyle="--", linewidth=1.0)
        axes.plot([baseline.number], [level], "*", color=BASELINE, markersize=11, label="baseline")
    axes.set_ylim(low - 2.2 * room, top + room)
    value_axis(axes.yaxis, goal)


def _without_value(axes: Axes, rows: Sequence[Row]) -> None:
    marks = {
        "failed": ("x", FAILED, 0.09),
        "pruned": ("v", FAINT, 0.035),
        "stopped": ("|", FAINT, 0.035),
    }
    for state, (mark, colour, height) in marks.items():
        at = [row.number for row in rows if row.state == state]
        if at:
            axes.plot(
                at, [height] * len(at), mark, color=colour, markersize=6, label=state,
                transform=axes.get_xaxis_transform(),
            )  # fmt: skip
