"""An objective over pairs of a sweep's settings."""

from collections.abc import Sequence
from itertools import combinations

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from report.style import house_style, make_figure, margins
from report.sweep_axes import Setting, highest_shown, setting_axis, value_label
from report.sweep_marks import mark_special, scaled, shared_legend
from report.sweep_rows import Objective, Row, done

_SETTINGS, _FEWEST = 3, 10
_CELLS, _NEAR, _FARTHEST = 60, 0.09, 0.16  # the last two are shares of an axis
_MAP = "viridis"


def contours(
    rows: Sequence[Row], settings: Sequence[Setting], index: int, goal: Objective
) -> Figure | None:
    """The pairs of the three first settings; None where no pair has 10 trials.

    The ground is the mean of the trials nearby (a Gaussian kernel), white where none is near: it
    guides the eye and promises nothing between the trials.
    """
    finished = sorted(done(rows), key=lambda row: row.number)
    pairs = []
    for one, other in combinations(settings[:_SETTINGS], 2):
        active = [row for row in finished if {one.key, other.key} <= row.params.keys()]
        if len(active) >= _FEWEST:
            pairs.append((one, other, active))
    if not pairs:
        return None
    value_N = scaled(finished, index, goal)
    norm = Normalize(float(value_N.min()), highest_shown(value_N), clip=True)
    best = finished[int(value_N.argmin())]
    with house_style():
        width = 1.65 + 3.05 * len(pairs)
        figure = make_figure(width, 3.7)
        panels = figure.subplots(1, len(pairs), squeeze=False)[0]
        margins(figure, left=1.1, right=1.15, top=0.45, bottom=0.95)
        figure.subplots_adjust(wspace=0.48)
        for axes, (one, other, active) in zip(panels, pairs, strict=True):
            _panel(axes, one, other, active, scaled(active, index, goal), norm, best)
        bar_axes = figure.add_axes((1 - 0.95 / width, 0.95 / 3.7, 0.13 / width, 2.3 / 3.7))
        bar = figure.colorbar(
            matplotlib.cm.ScalarMappable(norm, _MAP), cax=bar_axes, label=value_label(goal)
        )
        bar.outline.set_visible(False)
        shared_legend(figure)
    return figure


def _panel(
    axes: Axes,
    one: Setting,
    other: Setting,
    active: Sequence[Row],
    value_N: np.ndarray,
    norm: Normalize,
    best: Row,
) -> None:
    setting_axis(axes, "x", one, active, room=26)
    setting_axis(axes, "y", other, active, room=26)
    x_edges, y_edges = _edges(one, active), _edges(other, active)
    ground_YX = surface(
        (one.unit(one.places(active), active), other.unit(other.places(active), active)),
        np.minimum(value_N, norm.vmax or 0.0),
        (_middles(one.unit(x_edges, active)), _middles(other.unit(y_edges, active))),
        (
            _NEAR / len(one.levels) if one.levels else _NEAR,
            _NEAR / len(other.levels) if other.levels else _NEAR,
        ),
    )
    axes.pcolormesh(x_edges, y_edges, ground_YX, cmap=_MAP, norm=norm, alpha=0.55, linewidth=0)
    x_N, y_N = one.spread(active, "x"), other.spread(active, "y")
    axes.scatter(
        x_N, y_N, s=22, c=value_N, cmap=_MAP, norm=norm, edgecolors="white", linewidths=0.7
    )
    mark_special(axes, active, x_N, y_N, best)


def _edges(one: Setting, active: Sequence[Row]) -> np.ndarray:
    low, high = one.limits(active)
    if one.levels:
        return np.arange(len(one.levels) + 1) - 0.5
    return np.geomspace(low, high, _CELLS + 1) if one.log else np.linspace(low, high, _CELLS + 1)


def _middles(edges: np.ndarray) -> np.ndarray:
    return (edges[1:] + edges[:-1]) / 2


def surface(
    place_2N: tuple[np.ndarray, np.ndarray],
    value_N: np.ndarray,
    cell_2: tuple[np.ndarray, np.ndarray],
    near: tuple[float, float],
) -> np.ndarray:
    """Kernel-weighted mean of the values at every cell, NaN farther than `_FARTHEST` from all.

    Args:
        place_2N: the trials' x and y, 0 to 1.
        value_N: their values.
        cell_2: middles of the cells along x and y.
        near: width of the kernel along x and y.
    """
    x_XN = (cell_2[0][:, None] - place_2N[0][None]) / near[0]
    y_YN = (cell_2[1][:, None] - place_2N[1][None]) / near[1]
    square_YXN = y_YN[:, None] ** 2 + x_XN[None] ** 2
    weight_YXN = np.exp(-square_YXN / 2)
    mean_YX = weight_YXN @ value_N / np.maximum(weight_YXN.sum(axis=2), 1e-300)
    far_YX = square_YXN.min(axis=2) > (_FARTHEST / _NEAR) ** 2
    return np.where(far_YX, np.nan, mean_YX)
