"""Trials in order, objectives over each setting and over pairs of settings, and their axes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from report.plotting import FAINT, house_style, make_figure, margins, plain
from report.sweep.trials import (
    BASELINE,
    BEST,
    FAILED,
    POINT,
    Objective,
    Row,
    baseline_of,
    done,
    ending,
    mark_special,
    scaled,
    shared_legend,
    value_text,
)
from utils.text import shorten

_MOST_LEVELS = 8
_SPREAD = {"x": 0.618034, "y": 0.754878}  # irrational, so that marks fall evenly and apart
MOST_PANELS, _PER_ROW = 12, 3
_SETTINGS, _FEWEST = 3, 10
_CELLS, _NEAR, _FARTHEST = 60, 0.09, 0.16  # the last two are shares of an axis
_MAP = "viridis"


@dataclass(frozen=True)
class Setting:
    """How one setting is laid along an axis: as a number, or as places 0, 1, ... for its levels."""

    key: str
    label: str
    log: bool
    levels: tuple[str, ...]  # none: a number

    def places(self, rows: Sequence[Row]) -> np.ndarray:
        """Where the trials stand on the axis."""
        if not self.levels:
            return np.array([float(row.params[self.key]) for row in rows])
        order = {level: place for place, level in enumerate(self.levels)}
        return np.array([float(order[value_text(row.params[self.key])]) for row in rows])

    def spread(self, rows: Sequence[Row], which: str) -> np.ndarray:
        """The same, but levels are spread a little along x or y, so that every mark is seen."""
        place_N = self.places(rows)
        if not self.levels:
            return place_N
        number_N = np.array([row.number for row in rows])
        return place_N + min(0.3, 0.02 * len(rows)) * (2 * (number_N * _SPREAD[which] % 1) - 1)

    def limits(self, rows: Sequence[Row]) -> tuple[float, float]:
        """Both ends of the axis, with room for the marks at the ends."""
        if self.levels:
            return -0.5, len(self.levels) - 0.5
        place_N = self.places(rows)
        low, high = float(place_N.min()), float(place_N.max())
        if self.log:
            room = (high / low) ** 0.06 if high > low else 1.1
            return low / room, high * room
        room = 0.06 * (high - low) or 0.02 * abs(high) or 1.0
        return low - room, high + room

    def unit(self, place_N: np.ndarray, rows: Sequence[Row]) -> np.ndarray:
        """Places as shares of the axis, 0 to 1."""
        low, high = self.limits(rows)
        if self.log:
            place_N, low, high = np.log(place_N), np.log(low), np.log(high)
        return (place_N - low) / (high - low)


def setting(
    key: str, label: str, rows: Sequence[Row], known: Mapping[str, BaseDistribution]
) -> Setting:
    """The axis of a setting, from what the study says of it and from the values at hand."""
    distribution = known.get(key)
    values = [row.params[key] for row in rows if key in row.params]
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    levels: list[Any] = []
    if isinstance(distribution, CategoricalDistribution):
        levels = list(distribution.choices)
    elif not numbers:
        levels = values
    elif isinstance(distribution, IntDistribution):
        levels = sorted(set(values))
    if numbers and len(levels) > _MOST_LEVELS:
        levels = []
    names = dict.fromkeys(value_text(value) for value in [*levels, *(values if levels else [])])
    log = isinstance(distribution, FloatDistribution | IntDistribution) and distribution.log
    log = log and not levels and min(values, default=0) > 0
    return Setting(key, ending(plain(label), 26), log, tuple(names))


def setting_axis(axes: Axes, which: str, one: Setting, rows: Sequence[Row], room: int) -> None:
    """Limits, ticks and name of the x or y axis; `room` is how many letters fit along it."""
    axis: Axis = axes.xaxis if which == "x" else axes.yaxis
    (axes.set_xlim if which == "x" else axes.set_ylim)(*one.limits(rows))
    axis.set_label_text(one.label)
    if one.levels:
        names = [shorten(plain(level), 14 if len(one.levels) < 6 else 10) for level in one.levels]
        step = max(1, -(-len(names) // 20))
        axis.set_major_locator(FixedLocator(range(0, len(names), step)))
        turned = which == "x" and sum(len(name) + 2 for name in names) > room
        axis.set_ticklabels(
            names[::step],
            rotation=30 if turned else 0,
            ha="right" if turned or which == "y" else "center",
            rotation_mode="anchor" if turned else "default",
        )
        return
    if one.log:
        (axes.set_xscale if which == "x" else axes.set_yscale)("log")
        low, high = one.limits(rows)
        subs = (1, 2, 5) if high / low < 200 else (1,)
        axis.set_major_locator(LogLocator(subs=subs, numticks=8))
        axis.set_minor_locator(NullLocator())
    else:
        axis.set_major_locator(MaxNLocator(4))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def value_axis(axis: Axis, goal: Objective) -> None:
    """Plain numbers on an axis of values, few of them."""
    axis.set_major_locator(MaxNLocator(5))
    if goal.name != "flops":
        axis.set_major_formatter(
            FuncFormatter(lambda value, _: goal.text(value) if abs(value) >= 1000 else f"{value:g}")
        )


def value_label(goal: Objective) -> str:
    """Name and unit of an objective, on two lines."""
    name, unit = shorten(plain(goal.name), 30), shorten(plain(goal.shown_unit), 34)
    return name if name == unit else f"{name}\n{unit}"


def highest_shown(value_N: np.ndarray) -> float:
    """The top of the axis: a trial that went wrong does not squeeze all others together."""
    low, high = np.quantile(value_N, [0.25, 0.75])
    fence = high + 5 * (high - low)
    return float(value_N[value_N <= fence].max()) if high > low else float(value_N.max())


def history(rows: Sequence[Row], objectives: Sequence[Objective]) -> Figure:
    """One panel per objective; trials without a value stand below the axis' lowest value."""
    with house_style():
        figure = make_figure(7.6, 0.9 + 2.7 * len(objectives))
        panels = figure.subplots(len(objectives), 1, sharex=True, squeeze=False)[:, 0]
        margins(figure, left=0.85, right=0.2, top=0.5, bottom=0.5)
        for index, (axes, goal) in enumerate(zip(panels, objectives, strict=True)):
            _history_panel(axes, rows, index, goal)
        panels[-1].set_xlabel("trial")
        panels[-1].xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
        shared_legend(figure)
    return figure


def _history_panel(axes: Axes, rows: Sequence[Row], index: int, goal: Objective) -> None:
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
            _slice_panel(axes, finished, one, index, goal)
        for axes in panels[len(shown) :]:
            axes.set_visible(False)
        for line in grid[:, 0]:
            line.set_ylabel(value_label(goal))
        shared_legend(figure)
    return figure


def _slice_panel(
    axes: Axes, finished: Sequence[Row], one: Setting, index: int, goal: Objective
) -> None:
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


def contours(
    rows: Sequence[Row], settings: Sequence[Setting], index: int, goal: Objective
) -> Figure | None:
    """The pairs of the three first settings; None where no pair has 10 trials.

    The ground is the mean of the trials nearby (a Gaussian kernel), white where none is near: it
    guides the eye and promises nothing between the trials.
    """
    finished = sorted(done(rows), key=lambda row: row.number)
    pairs = []
    for one, other in combinations(settings[:_SETTINGS], 2):
        active = [row for row in finished if {one.key, other.key} <= row.params.keys()]
        if len(active) >= _FEWEST:
            pairs.append((one, other, active))
    if not pairs:
        return None
    value_N = scaled(finished, index, goal)
    norm = Normalize(float(value_N.min()), highest_shown(value_N), clip=True)
    best = finished[int(value_N.argmin())]
    with house_style():
        width = 1.65 + 3.05 * len(pairs)
        figure = make_figure(width, 3.7)
        panels = figure.subplots(1, len(pairs), squeeze=False)[0]
        margins(figure, left=1.1, right=1.15, top=0.45, bottom=0.95)
        figure.subplots_adjust(wspace=0.48)
        for axes, (one, other, active) in zip(panels, pairs, strict=True):
            _contour_panel(axes, one, other, active, scaled(active, index, goal), norm, best)
        bar_axes = figure.add_axes((1 - 0.95 / width, 0.95 / 3.7, 0.13 / width, 2.3 / 3.7))
        bar = figure.colorbar(
            matplotlib.cm.ScalarMappable(norm, _MAP), cax=bar_axes, label=value_label(goal)
        )
        bar.outline.set_visible(False)
        shared_legend(figure)
    return figure


def _contour_panel(
    axes: Axes,
    one: Setting,
    other: Setting,
    active: Sequence[Row],
    value_N: np.ndarray,
    norm: Normalize,
    best: Row,
) -> None:
    setting_axis(axes, "x", one, active, room=26)
    setting_axis(axes, "y", other, active, room=26)
    x_edges, y_edges = _edges(one, active), _edges(other, active)
    ground_YX = surface(
        (one.unit(one.places(active), active), other.unit(other.places(active), active)),
        np.minimum(value_N, norm.vmax or 0.0),
        (_middles(one.unit(x_edges, active)), _middles(other.unit(y_edges, active))),
        (
            _NEAR / len(one.levels) if one.levels else _NEAR,
            _NEAR / len(other.levels) if other.levels else _NEAR,
        ),
    )
    axes.pcolormesh(x_edges, y_edges, ground_YX, cmap=_MAP, norm=norm, alpha=0.55, linewidth=0)
    x_N, y_N = one.spread(active, "x"), other.spread(active, "y")
    axes.scatter(
        x_N, y_N, s=22, c=value_N, cmap=_MAP, norm=norm, edgecolors="white", linewidths=0.7
    )
    mark_special(axes, active, x_N, y_N, best)


def _edges(one: Setting, active: Sequence[Row]) -> np.ndarray:
    low, high = one.limits(active)
    if one.levels:
        return np.arange(len(one.levels) + 1) - 0.5
    return np.geomspace(low, high, _CELLS + 1) if one.log else np.linspace(low, high, _CELLS + 1)


def _middles(edges: np.ndarray) -> np.ndarray:
    return (edges[1:] + edges[:-1]) / 2


def surface(
    place_2N: tuple[np.ndarray, np.ndarray],
    value_N: np.ndarray,
    cell_2: tuple[np.ndarray, np.ndarray],
    near: tuple[float, float],
) -> np.ndarray:
    """Kernel-weighted mean of the values at every cell, NaN farther than `_FARTHEST` from all.

    Args:
        place_2N: the trials' x and y, 0 to 1.
        value_N: their values.
        cell_2: middles of the cells along x and y.
        near: width of the kernel along x and y.
    """
    x_XN = (cell_2[0][:, None] - place_2N[0][None]) / near[0]
    y_YN = (cell_2[1][:, None] - place_2N[1][None]) / near[1]
    square_YXN = y_YN[:, None] ** 2 + x_XN[None] ** 2
    weight_YXN = np.exp(-square_YXN / 2)
    mean_YX = weight_YXN @ value_N / np.maximum(weight_YXN.sum(axis=2), 1e-300)
    far_YX = square_YXN.min(axis=2) > (_FARTHEST / _NEAR) ** 2
    return np.where(far_YX, np.nan, mean_YX)
