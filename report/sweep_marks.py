"""What the marks in a sweep's figures look like."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from report.sweep_rows import Objective, Row

POINT, BEST, BASELINE, FAILED = "#0072b2", "#009e73", "#d55e00", "#882255"


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
