"""Figure of a comparison: nats or bits of each layout against every cost that is known.

N rows of the comparison, P points; an axis of 2 holds both axes of a panel, a second the ends of an
interval
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from report.comparison import CHOSEN_ROLES, Comparison
from report.plotting import (
    SEARCHED,
    cost_axes,
    house_style,
    make_figure,
    margins,
    name_points,
    room,
)
from utils.text import compact

_MARKS = {
    **dict.fromkeys(CHOSEN_ROLES, ("*", SEARCHED, 13.0)),
    "front": ("s", "#009e73", 6.5),
    "opponent": ("o", "#0072b2", 6.5),
}
_PANEL_INCHES, _BETWEEN_INCHES = 3.1, 0.75
_POINTS_OF_BAR = 12
_TOP_INCHES, _BOTTOM_INCHES = 0.45, 0.55


@dataclass(frozen=True)
class _Cost:
    column: str
    name: str
    unit: str
    show: Callable[[float], str]


_COSTS = (
    _Cost("latency_ms", "forward latency", ", ms", lambda value: f"{value:g}"),
    _Cost("flops_per_token", "forward FLOPs per token", "", compact),
)


def measure_of(comparison: Comparison) -> str:
    """Measure of the figure: bits per byte, or nats per token where text may be lost."""
    return "nats per token" if comparison.rows["bits_per_byte"].isna().all() else "bits per byte"


def costs_drawn(comparison: Comparison) -> list[str]:
    """The costs that are known, a panel for each; where none is, one of FLOPs without marks."""
    return [cost.name for cost in _drawn(comparison)]


def _drawn(comparison: Comparison) -> list[_Cost]:
    known = np.isfinite(comparison.rows[[cost.column for cost in _COSTS]].to_numpy(float))
    return [cost for cost, any_row in zip(_COSTS, known.any(axis=0), strict=True) if any_row] or [
        _COSTS[-1]
    ]


def scatter(comparison: Comparison) -> Figure:
    """Draw each layout by its measure against latency and FLOPs; down and left is better.

    Networks of equal FLOPs, as opponents may be, differ in latency. A mark
    has the 95% interval of its mean where there are several seeds, and that of its latency.
    """
    costs = _drawn(comparison)
    panels_inches = _PANEL_INCHES * len(costs) + _BETWEEN_INCHES * (len(costs) - 1)
    with house_style():
        figure = make_figure(7.6, panels_inches + _TOP_INCHES + _BOTTOM_INCHES)
        grid = figure.subplots(len(costs), squeeze=False)[:, 0]
        margins(figure, left=0.85, right=0.25, top=_TOP_INCHES, bottom=_BOTTOM_INCHES)
        figure.subplots_adjust(hspace=_BETWEEN_INCHES / _PANEL_INCHES)
        for axes, cost in zip(grid, costs, strict=True):
            _draw(axes, comparison, cost)
        grid[0].set_title("lower and further left is better", loc="left", color="#666666")
        names = dict[str, Artist]()
        for axes in grid:
            marks, labels = axes.get_legend_handles_labels()
            names |= dict(zip(labels, marks, strict=True))
        if names:
            grid[0].legend(
                names.values(), names.keys(),
                loc="lower right", bbox_to_anchor=(1, 1), ncols=4, borderaxespad=0.2,
            )  # fmt: skip
    return figure


def _draw(axes: Axes, comparison: Comparison, cost: _Cost) -> None:
    """The marks of one panel, their intervals and their names."""
    rows, measure = comparison.rows, measure_of(comparison)
    at_N2 = rows[[cost.column, measure.replace(" ", "_")]].to_numpy(float)
    drawn_N = np.isfinite(at_N2).all(axis=1)
    ends_N22 = _ends(comparison, cost, measure, at_N2)
    _marks(axes, rows["role"][drawn_N], at_N2[drawn_N])
    _bars(axes, at_N2[drawn_N], ends_N22[drawn_N])
    cost_axes(axes, f"{cost.name}{cost.unit}", f"test {measure}", cost.show)
    if drawn_N.any():
        axes.set_xlim(_limits(ends_N22[drawn_N, 0], 0.2))
        axes.set_ylim(_limits(ends_N22[drawn_N, 1], 0.15))
        names, bars_P2 = list(rows["name"][drawn_N]), _along_bars(at_N2[drawn_N], ends_N22[drawn_N])
        name_points(axes, names, at_N2[drawn_N, 0], at_N2[drawn_N, 1], bars_P2)


def _marks(axes: Axes, roles: pd.Series, at_N2: np.ndarray) -> None:
    for role, (mark, colour, size) in _MARKS.items():
        shown = (roles == role).to_numpy()
        if shown.any():
            label = role if shown.sum() == 1 or role in CHOSEN_ROLES else f"{role}s"
            axes.plot(
                *at_N2[shown].T, mark, color=colour, markersize=size,
                markeredgecolor="white", markeredgewidth=0.6,
                zorder=4 if role in CHOSEN_ROLES else 3, label=label,
            )  # fmt: skip


def _ends(comparison: Comparison, cost: _Cost, measure: str, at_N2: np.ndarray) -> np.ndarray:
    """Ends of the intervals along both axes; the point itself where none is known."""
    rows, ends_N22 = comparison.rows, np.repeat(at_N2[:, :, None], 2, axis=2)
    # Of one text the measures differ by a factor.
    factor_N = (rows[measure.replace(" ", "_")] / rows["nats_per_token"]).to_numpy(float)
    for row, name in enumerate(map(str, rows["name"])):
        if cost.column == "latency_ms" and (latency := comparison.latency_interval(name)):
            ends_N22[row, 0] = latency
        if nats := comparison.nats_interval(name):
            ends_N22[row, 1] = np.array(nats) * factor_N[row]
    return ends_N22


def _bars(axes: Axes, at_N2: np.ndarray, ends_N22: np.ndarray) -> None:
    """The intervals of each axis, with one name in the legend."""
    beyond_N22 = np.abs(ends_N22 - at_N2[:, :, None])
    label = "95% interval"
    for direction, errors in ((1, "yerr"), (0, "xerr")):
        barred = beyond_N22[:, direction].any(axis=1)
        if barred.any():
            sizes = {errors: beyond_N22[barred, direction].T}
            axes.errorbar(
                at_N2[barred, 0], at_N2[barred, 1], fmt="none", ecolor="#666666", elinewidth=1.0,
                capsize=3.0, zorder=2, label=label, **sizes,
            )  # fmt: skip
            label = "_nolegend_"


def _along_bars(at_N2: np.ndarray, ends_N22: np.ndarray) -> np.ndarray:
    """Points along all intervals, near enough to each other to keep names off their lines."""
    places_NP2 = np.repeat(at_N2[:, None], 2 * _POINTS_OF_BAR, axis=1)
    for direction in (0, 1):
        along = slice(direction * _POINTS_OF_BAR, (direction + 1) * _POINTS_OF_BAR)
        low_N, high_N = ends_N22[:, direction].T
        places_NP2[:, along, direction] = np.linspace(low_N, high_N, _POINTS_OF_BAR, axis=1)
    return places_NP2.reshape(-1, 2)


def _limits(values: np.ndarray, share: float) -> tuple[float, float]:
    """Both ends of an axis with room for names."""
    low, high = float(values.min()), float(values.max())
    return low - room(low, high, share), high + room(low, high, share)
