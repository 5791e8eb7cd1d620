"""Figure of a comparison: nats or bits of each layout against every cost that is known.

N rows of the comparison, P points; an axis of 2 holds both axes of a panel, a second the ends of an
interval
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from report.comparison import CHOSEN_ROLES, Comparison
from report.plotting import SEARCHED, cost_axes, framed, name_points, room
from utils.text import compact

_MARKS = {
    **dict.fromkeys(CHOSEN_ROLES, ("*", SEARCHED, 13.0)),
    "front": ("s", "#009e73", 6.5),
    "opponent": ("o", "#0072b2", 6.5),
}
_COSTS: dict[str, tuple[str, str, Callable[[float], str]]] = {  # name, unit, how it is written
    "latency_ms": ("forward latency", ", ms", "{:g}".format),
    "flops_per_token": ("forward FLOPs per token", "", compact),
}


def measure_of(comparison: Comparison) -> str:
    """Measure of the figure: bits per byte, or nats per token where text may be lost."""
    return "nats per token" if comparison.rows["bits_per_byte"].isna().all() else "bits per byte"


def costs_drawn(comparison: Comparison) -> list[str]:
    """The costs that are known, a panel for each; where none is, one of FLOPs without marks."""
    known = [column for column in _COSTS if np.isfinite(comparison.rows[column]).any()]
    return [_COSTS[column][0] for column in known or ["flops_per_token"]]


def scatter(comparison: Comparison) -> Figure:
    """Draw each layout by its measure against latency and FLOPs; down and left is better.

    Networks of equal FLOPs, as opponents may be, differ in latency. A mark has the 95% interval of
    its mean where there are several seeds, and that of its latency.
    """
    drawn = costs_drawn(comparison)
    columns = [column for column, (name, _, _) in _COSTS.items() if name in drawn]
    height = 3.1 * len(columns) + 0.75 * (len(columns) - 1) + 1.0
    with framed(7.6, height, len(columns), left=0.85, right=0.25, top=0.45) as (figure, grid):
        figure.subplots_adjust(hspace=0.75 / 3.1)
        for axes, column in zip(grid[:, 0], columns, strict=True):
            _draw(axes, comparison, column)
        first: Axes = grid[0, 0]
        first.set_title("lower and further left is better", loc="left", color="#666666")
        found = [axes.get_legend_handles_labels() for axes in figure.axes]
        marks = {
            label: mark
            for handles, labels in found
            for mark, label in zip(handles, labels, strict=True)
        }
        if marks:
            place: dict[str, Any] = {"loc": "lower right", "bbox_to_anchor": (1, 1)}
            first.legend(marks.values(), marks.keys(), ncols=4, borderaxespad=0.2, **place)
    return figure


def _draw(axes: Axes, comparison: Comparison, column: str) -> None:
    """The marks of one panel, their intervals and their names."""
    name, unit, written = _COSTS[column]
    rows, measure = comparison.rows, measure_of(comparison)
    at_N2 = rows[[column, measure.replace(" ", "_")]].to_numpy(float)
    drawn_N = np.isfinite(at_N2).all(axis=1)
    at_P2, ends_P22 = at_N2[drawn_N], _ends(comparison, column, at_N2)[drawn_N]
    roles_P = rows["role"].to_numpy()[drawn_N]
    cost_axes(axes, f"{name}{unit}", f"test {measure}", written)
    for role, (mark, colour, size) in _MARKS.items():
        shown_P = roles_P == role
        if shown_P.any():
            chosen = role in CHOSEN_ROLES
            axes.plot(
                *at_P2[shown_P].T, mark, color=colour, markersize=size, markeredgecolor="white",
                markeredgewidth=0.6, zorder=4 if chosen else 3,
                label=role if chosen or shown_P.sum() == 1 else f"{role}s",
            )  # fmt: skip
    label = "95% interval"
    for direction, errors in ((1, "yerr"), (0, "xerr")):
        beyond_P2 = np.abs(ends_P22[:, direction] - at_P2[:, direction, None])
        barred_P = beyond_P2.any(axis=1)
        if barred_P.any():
            sizes = {errors: beyond_P2[barred_P].T}
            axes.errorbar(
                at_P2[barred_P, 0], at_P2[barred_P, 1], fmt="none", ecolor="#666666",
                elinewidth=1.0, capsize=3.0, zorder=2, label=label, **sizes,
            )  # fmt: skip
            label = "_nolegend_"
    if len(at_P2):
        axes.set_xlim(_limits(ends_P22[:, 0], 0.2))
        axes.set_ylim(_limits(ends_P22[:, 1], 0.15))
        names = [str(each) for each in rows["name"][drawn_N]]
        name_points(axes, names, at_P2[:, 0], at_P2[:, 1], _along_bars(at_P2, ends_P22))


def _ends(comparison: Comparison, column: str, at_N2: np.ndarray) -> np.ndarray:
    """Ends of the intervals along both axes; the point itself where none is known."""
    rows, ends_N22 = comparison.rows, np.repeat(at_N2[:, :, None], 2, axis=2)
    # Of one text the measures differ by a factor.
    factor_N = at_N2[:, 1] / rows["nats_per_token"].to_numpy(float)
    for row, name in enumerate(map(str, rows["name"])):
        if column == "latency_ms" and (latency := comparison.latency_interval(name)):
            ends_N22[row, 0] = latency
        if nats := comparison.nats_interval(name):
            ends_N22[row, 1] = np.array(nats) * factor_N[row]
    return ends_N22


def _along_bars(at_P2: np.ndarray, ends_P22: np.ndarray) -> np.ndarray:
    """Points along all intervals, near enough to each other to keep names off their lines."""
    across_PB2 = np.repeat(at_P2[:, None], 12, axis=1)
    upwards_PB2 = across_PB2.copy()
    for direction, places_PB2 in enumerate((across_PB2, upwards_PB2)):
        low_P, high_P = ends_P22[:, direction].T
        places_PB2[:, :, direction] = np.linspace(low_P, high_P, 12, axis=1)
    return np.concatenate([across_PB2, upwards_PB2]).reshape(-1, 2)


def _limits(values: np.ndarray, share: float) -> tuple[float, float]:
    """Both ends of an axis with room for names."""
    low, high = float(values.min()), float(values.max())
    return low - room(low, high, share), high + room(low, high, share)
