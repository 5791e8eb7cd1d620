"""Axes of a sweep's figures: a setting, or an objective's values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from report.style import plain
from report.sweep_rows import Objective, Row, ending, value_text
from utils.text import shorten

_MOST_LEVELS = 8
_SPREAD = {"x": 0.618034, "y": 0.754878}  # irrational, so that marks fall evenly and apart


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
