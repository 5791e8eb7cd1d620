"""Axes and marks of a sweep's figures: of settings, of objectives, of the best and the baseline."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from report.plotting import plain, room, short_label
from report.sweep.trials import Objective, Row, ending, value_text

POINT, BEST, BASELINE, FAILED = "#0072b2", "#009e73", "#d55e00", "#882255"
_MOST_LEVELS, _MOST_LETTERS = 8, 26  # of an axis
_SPREAD = {"x": 0.618034, "y": 0.754878}  # irrational, so that marks fall evenly and apart


@dataclass(frozen=True)
class Setting:
    """Scale of one setting along an axis: as a number, or as places 0, 1, ... for its levels."""

    key: str
    label: str
    log: bool
    levels: tuple[str, ...]  # none: a number

    def places(self, rows: Sequence[Row]) -> np.ndarray:
        """Places of the trials on the axis."""
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
            factor = (high / low) ** 0.06 if high > low else 1.1
            return low / factor, high * factor
        return low - room(low, high, 0.06), high + room(low, high, 0.06)


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


def setting_axis(axes: Axes, which: str, one: Setting, rows: Sequence[Row]) -> None:
    """Limits, ticks and name of the x or y axis."""
    axis: Axis = axes.xaxis if which == "x" else axes.yaxis
    (axes.set_xlim if which == "x" else axes.set_ylim)(*one.limits(rows))
    axis.set_label_text(one.label)
    if one.levels:
        names = [short_label(level, 14 if len(one.levels) < 6 else 10) for level in one.levels]
        step = max(1, -(-len(names) // 20))
        axis.set_major_locator(FixedLocator(range(0, len(names), step)))
        turned = which == "x" and sum(len(name) + 2 for name in names) > _MOST_LETTERS
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
    name, unit = short_label(goal.name, 30), short_label(goal.shown_unit, 34)
    return name if name == unit else f"{name}\n{unit}"


def highest_shown(value_N: np.ndarray) -> float:
    """The top of the axis: a trial that went wrong does not squeeze all others together."""
    low, high = np.quantile(value_N, [0.25, 0.75])
    fence = high + 5 * (high - low)
    return float(value_N[value_N <= fence].max()) if high > low else float(value_N.max())


def scaled(rows: Sequence[Row], index: int, goal: Objective) -> np.ndarray:
    """The trials' values in one objective, in the shown unit."""
    return np.array([goal.scaled(row.values[index]) for row in rows if row.values])


def mark_special(
    axes: Axes, active: Sequence[Row], x_N: np.ndarray, y_N: np.ndarray, best: Row
) -> None:
    """A ring around the best trial and a star on the baseline, where they are among `active`."""
    for row, x, y in zip(active, x_N, y_N, strict=True):
        if row.baseline:
            axes.plot(
                [x], [y], "*", color=BASELINE, markersize=11, markeredgecolor="white",
                markeredgewidth=0.5, label="baseline", zorder=5,
            )  # fmt: skip
        if row.number == best.number:
            axes.plot(
                [x], [y], "o", markerfacecolor="none", markeredgecolor=BEST, markersize=9,
                markeredgewidth=2, label="best", zorder=6,
            )  # fmt: skip


def shared_legend(figure: Figure) -> None:
    """One legend above all panels, every mark in it once."""
    handles = {
        label: handle
        for axes in figure.axes
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    if handles:
        figure.legend(list(handles.values()), list(handles), loc="upper right", ncols=6)
