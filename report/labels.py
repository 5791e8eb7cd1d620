"""Names beside points that cover nothing."""

import math
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox

from report.style import plain
from utils.text import shorten

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


def name_points(
    canvas: Any,
    axes: Axes,
    names: list[str],
    x: np.ndarray,
    y: np.ndarray,
    others_N2: np.ndarray | None = None,
) -> None:
    """Write each name where it covers neither a mark nor another name.

    Args:
        canvas: the Agg canvas of the figure, whose limits are set.
        axes: where the points are.
        names: one for each point.
        x: the points' places.
        y: the points' places.
        others_N2: marks without a name.
    """
    renderer = canvas.get_renderer()
    marks_pixels = axes.transData.transform(np.column_stack([x, y]))
    taken = [Bbox.from_extents(u - 9, v - 9, u + 9, v + 9) for u, v in marks_pixels]
    if others_N2 is not None and len(others_N2):
        for u, v in axes.transData.transform(others_N2):
            taken.append(Bbox.from_extents(u - 5, v - 5, u + 5, v + 5))
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
