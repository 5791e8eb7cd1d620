"""Two objectives of a sweep against each other, and the trials that none beats."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from report.plotting import house_style, make_figure, margins, name_points, room, stairs
from report.run_files import thin
from report.sweep.axes import (
    BASELINE,
    BEST,
    POINT,
    highest_shown,
    scaled,
    shared_legend,
    value_axis,
    value_label,
)
from report.sweep.trials import Objective, Row, distinct_trials, front
from utils.text import shorten

_MOST_NAMES, _LONGEST_NAME, _MOST_PANELS = 12, 18, 3
_ROOM = (0.2, 0.12)  # beside and above the marks, as shares of what they span


def pareto(rows: Sequence[Row], objectives: Sequence[Objective]) -> Figure:
    """One panel per pair of objectives, at most 3; a front trial has its layout beside it.

    Trials of one network with the same values are one point.
    """
    pairs = list(combinations(range(len(objectives)), 2))[:_MOST_PANELS]
    with house_style():
        figure = make_figure(7.6, 0.3 + 4.1 * len(pairs))
        panels = figure.subplots(len(pairs), 1, squeeze=False)[:, 0]
        margins(figure, left=0.9, right=0.25, top=0.45, bottom=0.65)
        for axes, (first, second) in zip(panels, pairs, strict=True):
            # The cost lies along x, as in the figure of a comparison.
            _panel(axes, rows, (second, first), objectives)
        shared_legend(figure)
    return figure


def _panel(
    axes: Axes, rows: Sequence[Row], pair: tuple[int, int], objectives: Sequence[Objective]
) -> None:
    finished, unbeaten = distinct_trials(rows), front(rows)
    numbers = {row.number for row in unbeaten}
    others = [row for row in finished if row.number not in numbers]
    at = {
        name: [scaled(chosen, index, objectives[index]) for index in pair]
        for name, chosen in (("all", finished), ("front", unbeaten), ("others", others))
    }
    x_N, y_N = at["front"]
    limits = [
        _limits(at["all"][axis], at["front"][axis], share) for axis, share in enumerate(_ROOM)
    ]
    if others:
        seen = _inside(at["others"], limits)
        label = "beaten" if seen == len(others) else f"beaten ({len(others) - seen} outside)"
        axes.plot(*at["others"], "o", color=POINT, markersize=4.5, alpha=0.45, label=label)
    steps_N2 = stairs(x_N, y_N)
    if len(objectives) == 2:
        axes.plot(*steps_N2.T, color=BEST, linewidth=1.2)
    axes.plot(x_N, y_N, "o", color=BEST, markersize=6.5, label="beaten by none")
    for row in finished:
        if row.baseline:
            place = [scaled([row], index, objectives[index]) for index in pair]
            axes.plot(*place, "*", color=BASELINE, markersize=12, label="baseline")
    _finish(axes, limits, pair, objectives)
    named = [int(i) for i in np.lexsort((y_N, x_N))[thin(len(unbeaten), _MOST_NAMES)]]
    names = [
        shorten(f"{unbeaten[i].number}: {unbeaten[i].shown_layout}", _LONGEST_NAME) for i in named
    ]
    every_N2 = np.concatenate([np.column_stack(at["all"]), steps_N2])
    name_points(axes, names, x_N[named], y_N[named], every_N2)


def _finish(
    axes: Axes,
    limits: Sequence[tuple[float, float]],
    pair: tuple[int, int],
    objectives: Sequence[Objective],
) -> None:
    x, y = (objectives[index] for index in pair)
    axes.set_xlabel(value_label(x).replace("\n", ", "))
    axes.set_ylabel(value_label(y))
    axes.set_title("lower and further left is better", loc="left", color="#666666")
    axes.set_xlim(limits[0])
    axes.set_ylim(limits[1])
    value_axis(axes.xaxis, x)
    value_axis(axes.yaxis, y)
    axes.grid()


def _limits(every_N: np.ndarray, front_N: np.ndarray, share: float) -> tuple[float, float]:
    """Both ends of an axis with room for names; what went wrong lies outside."""
    low, high = float(every_N.min()), max(highest_shown(every_N), float(front_N.max()))
    return low - room(low, high, share), high + room(low, high, share)


def _inside(places: Sequence[np.ndarray], limits: Sequence[tuple[float, float]]) -> int:
    (x_N, y_N), ((_, right), (_, top)) = places, limits
    return int(((x_N <= right) & (y_N <= top)).sum())
