"""Test bits per byte, or nats per token, against FLOPs per token, one mark per layout."""

import math
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation
from matplotlib.ticker import FuncFormatter, MaxNLocator
from matplotlib.transforms import Bbox

from report.comparison import Comparison
from report.style import compact, house_style, make_figure, margins, plain, shorten

_MARKS = {"searched": ("*", "#d55e00", 13.0), "opponent": ("o", "#0072b2", 6.5)}
# Points right and up of the mark, and which side of the name stands there; the first that fits.
_Offset = tuple[int, int, Literal["left", "center", "right"], Literal["bottom", "center", "top"]]
_OFFSETS: tuple[_Offset, ...] = (
    (8, 0, "left", "center"),
    (-8, 0, "right", "center"),
    (0, 9, "center", "bottom"),
    (0, -9, "center", "top"),
    (7, 9, "left", "bottom"),
    (7, -9, "left", "top"),
    (-7, 9, "right", "bottom"),
    (-7, -9, "right", "top"),
    (8, 20, "left", "bottom"),
    (8, -20, "left", "top"),
    (-8, 20, "right", "bottom"),
    (-8, -20, "right", "top"),
)


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
            _name_points(figure.canvas, axes, list(rows["name"][drawn]), x[drawn], y[drawn])
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


def _name_points(canvas: Any, axes: Axes, names: list[str], x: np.ndarray, y: np.ndarray) -> None:
    """Write each name where it covers neither a mark nor another name."""
    renderer = canvas.get_renderer()
    marks_pixels = axes.transData.transform(np.column_stack([x, y]))
    taken = [Bbox.from_extents(u - 9, v - 9, u + 9, v + 9) for u, v in marks_pixels]
    inside = axes.get_window_extent(renderer)
    for index in np.lexsort((x, y)):
        label = axes.annotate(
            shorten(plain(str(names[index])), 26),
            (float(x[index]), float(y[index])),
            xytext=(0, 0),
            textcoords="offset points",
            fontsize=8.5,
        )
        others = taken[:index] + taken[index + 1 :]
        best, fewest = _OFFSETS[0], math.inf
        for offset in _OFFSETS:
            _place(label, offset)
            box = label.get_window_extent(renderer)
            outside = not (inside.contains(*box.min) and inside.contains(*box.max))
            hits = sum(box.overlaps(other) for other in others) + 2 * outside
            if hits < fewest:
                best, fewest = offset, hits
        _place(label, best)
        taken.append(label.get_window_extent(renderer))


def _place(label: Annotation, offset: _Offset) -> None:
    right, up, horizontal, vertical = offset
    label.set_position((right, up))
    label.set_horizontalalignment(horizontal)
    label.set_verticalalignment(vertical)
