"""Figure of a comparison: perplexity of each layout against every cost that is known.

P points of a panel; an axis of 2 holds both axes of a panel, a second the ends of an interval
"""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from report.comparison import CHOSEN_ROLES, Comparison
from report.plotting import COSTS, HUES, cost_axes, framed, headline, limits, name_points
from utils.text import compact

_MARKS = {  # mark, colour, size, words
    **dict.fromkeys(CHOSEN_ROLES, ("*", HUES["chosen"], 13.0, "chosen layout")),
    "baseline": ("o", HUES["baseline"], 6.5, "baselines"),
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
    at_P2 = rows[both].to_numpy()
    x_P, y_P = at_P2.T
    cost_axes(axes, COSTS[cost], "test perplexity", written)
    for role, (mark, colour, size, words) in _MARKS.items():
        shown_P = (rows["role"] == role).to_numpy()
        if shown_P.any():
            chosen = role in CHOSEN_ROLES
            axes.plot(
                *at_P2[shown_P].T, mark, color=colour, markersize=size, markeredgecolor="white",
                markeredgewidth=0.6, zorder=4 if chosen else 3,
                label=words,
            )  # fmt: skip
    if not len(rows):
        return
    ends_P22 = np.repeat(at_P2[:, :, None], 2, axis=2)
    known = {1: np.exp(rows[["nats_low", "nats_high"]].to_numpy(float))}
    known |= {0: rows[["latency_low", "latency_high"]].to_numpy(float)} if cost == "latency" else {}
    for axis, known_P2 in known.items():
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
    names = rows["name"].mask(rows["role"] != "baseline", "").tolist()
    name_points(axes, [*rows["layout"]], x_P, y_P, bars.reshape(-1, 2), names)
