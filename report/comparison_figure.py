"""Figure of a comparison: perplexity of each layout against every cost that is known.

P points of a panel; an axis of 2 holds the ends of an interval
"""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from report.comparison import Comparison
from report.plotting import COSTS, HUES, cost_axes, framed, headline, limits, name_points
from utils.text import compact

_MARKS = {  # mark, colour, size, words
    "chosen": ("*", HUES["chosen"], 13.0, "chosen layout"),
    "baseline": ("o", HUES["baseline"], 6.5, "baselines"),
    "parent": ("s", HUES["front"], 6.5, "parent"),
}
_COSTS = {"latency_ms": ("latency", "{:g}".format), "flops_per_token": ("flops", compact)}
_ALONG = 12  # points on an interval, near enough to each other to keep names off its line


def scatter(comparison: Comparison) -> Figure:
    """Draw each layout by its perplexity against latency and FLOPs; down and left is better.

    Networks of equal FLOPs, as baselines may be, differ in latency. A mark has the 95% interval of
    its mean where there are several seeds, and that of its latency.
    """
    columns = [column for column in _COSTS if np.isfinite(comparison.rows[column]).any()]
    columns = columns or ["flops_per_token"]
    height = 3.1 * len(columns) + 0.75 * (len(columns) - 1) + 1.0
    with framed(7.6, height, len(columns), left=0.85, right=0.25) as (figure, grid):
        figure.subplots_adjust(hspace=0.75 / 3.1)
        for axes, column in zip(grid[:, 0], columns, strict=True):
            _draw(axes, comparison, column)
        headline(figure, "Which layout predicts best for its cost?")
    return figure


def _draw(axes: Axes, comparison: Comparison, column: str) -> None:
    """The marks of one panel, their intervals and their names."""
    cost, written = _COSTS[column]
    both = [column, "perplexity"]
    rows = comparison.rows[np.isfinite(comparison.rows[both]).all(axis=1)]
    x_P, y_P = rows[both].to_numpy().T
    cost_axes(axes, COSTS[cost], "test perplexity", written)
    for role, (mark, colour, size, words) in _MARKS.items():
        shown_P = (rows["role"] == role).to_numpy()
        if shown_P.any():
            chosen = role == "chosen"
            axes.plot(
                x_P[shown_P], y_P[shown_P], mark, color=colour, markersize=size, label=words,
                markeredgecolor="white", markeredgewidth=0.6, zorder=4 if chosen else 3,
            )  # fmt: skip
    if not len(rows):
        return
    x_ends = ["latency_low", "latency_high"] if cost == "latency" else [column, column]
    x_2P = rows[x_ends].to_numpy(float).T
    y_2P = np.exp(rows[["nats_low", "nats_high"]].to_numpy(float)).T
    x_2P, y_2P = np.where(np.isnan(x_2P), x_P, x_2P), np.where(np.isnan(y_2P), y_P, y_2P)
    x_error_2P, y_error_2P = np.abs(x_2P - x_P), np.abs(y_2P - y_P)
    if x_error_2P.any() or y_error_2P.any():
        # Of an interval of no length the caps would still be drawn.
        x_error_2P[x_error_2P == 0], y_error_2P[y_error_2P == 0] = np.nan, np.nan
        axes.errorbar(
            x_P, y_P, xerr=x_error_2P, yerr=y_error_2P, fmt="none", ecolor="#666666",
            elinewidth=1.0, capsize=3.0, zorder=2, label="95% interval",
        )  # fmt: skip
    axes.set_xlim(limits(x_2P, 0.2))
    axes.set_ylim(limits(y_2P, 0.15))
    across = np.broadcast_arrays(np.linspace(x_2P[0], x_2P[1], _ALONG), y_P)
    upwards = np.broadcast_arrays(x_P, np.linspace(y_2P[0], y_2P[1], _ALONG))
    bars = np.concatenate([np.stack(across, axis=-1), np.stack(upwards, axis=-1)])
    names = rows["name"].mask(rows["role"] != "baseline", "").tolist()
    name_points(axes, [*rows["layout"]], x_P, y_P, bars.reshape(-1, 2), names)
