"""Figure of a comparison: nats or bits of each layout against every cost that is known.

P points of a panel; an axis of 2 holds both axes of a panel, a second the ends of an interval
"""

from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from report.comparison import CHOSEN_ROLES, Comparison
from report.plotting import SEARCHED, cost_axes, framed, limits, name_points, shared_legend
from utils.text import compact

_MARKS = {
    **dict.fromkeys(CHOSEN_ROLES, ("*", SEARCHED, 13.0)),
    "front": ("s", "#009e73", 6.5),
    "baseline": ("o", "#0072b2", 6.5),
}
_COSTS: dict[str, tuple[str, str, Callable[[float], str]]] = {  # name, unit, how it is written
    "latency_ms": ("forward latency", ", ms", "{:g}".format),
    "flops_per_token": ("forward FLOPs per token", "", compact),
}
_ALONG = 12  # points on an interval, near enough to each other to keep names off its line


def measure_of(comparison: Comparison) -> str:
    """Measure of the figure: bits per byte, or nats per token where text may be lost."""
    return "nats per token" if comparison.rows["bits_per_byte"].isna().all() else "bits per byte"


def costs_drawn(comparison: Comparison) -> list[str]:
    """The costs that are known, a panel for each; where none is, one of FLOPs without marks."""
    known = [column for column in _COSTS if np.isfinite(comparison.rows[column]).any()]
    return [_COSTS[column][0] for column in known or ["flops_per_token"]]


def scatter(comparison: Comparison) -> Figure:
    """Draw each layout by its measure against latency and FLOPs; down and left is better.

    Networks of equal FLOPs, as baselines may be, differ in latency. A mark has the 95% interval of
    its mean where there are several seeds, and that of its latency.
    """
    drawn = costs_drawn(comparison)
    columns = [column for column, (name, _, _) in _COSTS.items() if name in drawn]
    height = 3.1 * len(columns) + 0.75 * (len(columns) - 1) + 1.0
    with framed(7.6, height, len(columns), left=0.85, right=0.25, top=0.45) as (figure, grid):
        figure.subplots_adjust(hspace=0.75 / 3.1)
        for axes, column in zip(grid[:, 0], columns, strict=True):
            _draw(axes, comparison, column)
        grid[0, 0].set_title("lower and further left is better", loc="left", color="#666666")
        shared_legend(figure)
    return figure


def _draw(axes: Axes, comparison: Comparison, column: str) -> None:
    """The marks of one panel, their intervals and their names."""
    name, unit, written = _COSTS[column]
    measure = measure_of(comparison)
    both = [column, measure.replace(" ", "_")]
    rows = comparison.rows[np.isfinite(comparison.rows[both]).all(axis=1)]
    at_P2 = rows[both].to_numpy()
    x_P, y_P = at_P2.T
    cost_axes(axes, f"{name}{unit}", f"test {measure}", written)
    for role, (mark, colour, size) in _MARKS.items():
        shown_P = (rows["role"] == role).to_numpy()
        if shown_P.any():
            chosen = role in CHOSEN_ROLES
            axes.plot(
                *at_P2[shown_P].T, mark, color=colour, markersize=size, markeredgecolor="white",
                markeredgewidth=0.6, zorder=4 if chosen else 3,
                label=role if chosen or shown_P.sum() == 1 else f"{role}s",
            )  # fmt: skip
    if not len(rows):
        return
    ends_P22 = np.repeat(at_P2[:, :, None], 2, axis=2)
    # Of one text the measures differ by a factor.
    intervals = [(1, "nats", y_P / rows["nats_per_token"].to_numpy())]
    intervals += [(0, "latency", np.ones(len(rows)))] if column == "latency_ms" else []
    for axis, of, factor_P in intervals:
        known_P2 = rows[[f"{of}_low", f"{of}_high"]].to_numpy(float) * factor_P[:, None]
        ends_P22[:, axis] = np.where(np.isnan(known_P2), ends_P22[:, axis], known_P2)
    beyond_P22 = np.abs(ends_P22 - at_P2[:, :, None])
    if beyond_P22.any():
        beyond_P22[beyond_P22 == 0] = np.nan
        x_error_2P, y_error_2P = beyond_P22.transpose(1, 2, 0)
        axes.errorbar(
            x_P, y_P, xerr=x_error_2P, yerr=y_error_2P, fmt="none", ecolor="#666666",
            elinewidth=1.0, capsize=3.0, zorder=2, label="95% interval",
        )  # fmt: skip
    axes.set_xlim(limits(ends_P22[:, 0], 0.2))
    axes.set_ylim(limits(ends_P22[:, 1], 0.15))
    (left_P, right_P), (low_P, high_P) = ends_P22.transpose(1, 2, 0)
    across = np.broadcast_arrays(np.linspace(left_P, right_P, _ALONG), y_P)
    upwards = np.broadcast_arrays(x_P, np.linspace(low_P, high_P, _ALONG))
    bars = np.concatenate([np.stack(across, axis=-1), np.stack(upwards, axis=-1)])
    name_points(axes, [*map(str, rows["name"])], x_P, y_P, bars.reshape(-1, 2))
