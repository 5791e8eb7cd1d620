"""Test bits per byte, or nats per token, against FLOPs per token, one mark per layout."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from report.comparison import Comparison
from report.labels import name_points
from report.style import compact, house_style, make_figure, margins

_MARKS = {"searched": ("*", "#d55e00", 13.0), "opponent": ("o", "#0072b2", 6.5)}


def measure_of(comparison: Comparison) -> str:
    """What the figure shows: bits per byte, or nats per token where text may be lost."""
    return "nats per token" if comparison.rows["bits_per_byte"].isna().all() else "bits per byte"


def scatter(comparison: Comparison) -> Figure:
    """What each layout costs and how well it predicts; down and left is better."""
    rows = comparison.rows
    measure = measure_of(comparison)
    x = rows["flops_per_token"].to_numpy(float)
    y = rows[measure.replace(" ", "_")].to_numpy(float)
    drawn = np.isfinite(x) & np.isfinite(y)
    with house_style():
        figure = make_figure(7.6, 4.0)
        axes = figure.subplots()
        margins(figure, left=0.85, right=0.25, top=0.45, bottom=0.55)
        for role, (mark, colour, size) in _MARKS.items():
            chosen = drawn & (rows["role"] == role).to_numpy()
            if chosen.any():
                axes.plot(
                    x[chosen],
                    y[chosen],
                    linestyle="",
                    marker=mark,
                    color=colour,
                    markersize=size,
                    markeredgecolor="white",
                    markeredgewidth=0.6,
                    zorder=4 if role == "searched" else 3,
                    label=role if chosen.sum() == 1 or role == "searched" else f"{role}s",
                )
        _finish(axes, measure)
        if drawn.any():
            _room(axes, x[drawn], y[drawn])
            name_points(figure.canvas, axes, list(rows["name"][drawn]), x[drawn], y[drawn])
    return figure


def _finish(axes: Axes, measure: str) -> None:
    axes.set_xlabel("FLOPs per token (forward)")
    axes.set_ylabel(f"test {measure}")
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))
    axes.yaxis.set_major_locator(MaxNLocator(6))
    axes.ticklabel_format(axis="y", useOffset=False)
    axes.grid()
    axes.set_title("lower and further left is better", loc="left", color="#666666")
    if axes.get_lines():
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, borderaxespad=0.2)


def _room(axes: Axes, x: np.ndarray, y: np.ndarray) -> None:
    """Space around the points for their names."""
    for values, set_limits, share in ((x, axes.set_xlim, 0.2), (y, axes.set_ylim, 0.15)):
        low, high = float(values.min()), float(values.max())
        extra = share * (high - low) or 0.02 * abs(high) or 1.0
        set_limits(low - extra, high + extra)
