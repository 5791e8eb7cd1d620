"""Colours, fonts and sizes that all figures share, and names beside points that cover nothing."""

import io
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Annotation
from matplotlib.ticker import FuncFormatter, MaxNLocator
from matplotlib.transforms import Bbox

from utils.text import compact, shorten

DPI = 130
INK = "#222222"
FAINT = "#8a8a8a"
PI_MAP = "viridis"
SEARCHED = "#d55e00"  # the layout that the search found, in every figure
BAND_OPACITY = 0.18  # from the lowest to the highest of several searches

# Okabe and Ito's colours, told apart with every common colour blindness; grey does nothing. Four
# darker and paler ones follow for searches over many kinds.
_KNOWN = {"attention": "#d55e00", "dense": "#0072b2", "identity": "#8a8a8a"}
_OTHERS = (
    "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#332288", "#999933", "#882255", "#000000",
    "#ddcc77", "#117733", "#aa4499", "#663300",
)  # fmt: skip
_Dash = Literal["-", "--", "-.", ":"]
_DASHES: tuple[_Dash, ...] = ("-", "--", "-.", ":")

_STYLE = Path(__file__).with_name("house.mplstyle")
# Points right and up of the mark, of which the first place that is free is a name's.
_OFFSETS = (
    (8, 0), (-8, 0), (0, 9), (0, -9), (7, 9), (7, -9), (-7, 9), (-7, -9), (8, 20), (8, -20),
    (-8, 20), (-8, -20),
)  # fmt: skip


@contextmanager
def house_style() -> Iterator[None]:
    """The figures' settings, whatever the user's own matplotlibrc says, put back afterwards."""
    # Both making and drawing a figure must happen inside: ticks are made when they are drawn.
    with matplotlib.style.context(["default", _STYLE]):
        yield


def colours(labels: Sequence[str]) -> dict[str, str]:
    """One colour per label; the default candidates keep theirs in every figure."""
    rest = [label for label in labels if label not in _KNOWN]
    cycled = {label: _OTHERS[i % len(_OTHERS)] for i, label in enumerate(rest)}
    return {label: _KNOWN.get(label) or cycled[label] for label in labels}


def dashes(index: int) -> _Dash:
    """A line style that tells apart what colour alone may not."""
    return _DASHES[index % len(_DASHES)]


def text_on(colour: str) -> str:
    """Black or white, whichever is easier to read on `colour` (WCAG relative luminance)."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#000000" if luminance > 0.179 else "#ffffff"


def plain(text: str) -> str:
    """`text` as the bundled font can draw it, and as a legend will not skip it."""
    drawn = "".join(c if c.isprintable() and ord(c) < 0x500 else "?" for c in text)
    return f" {drawn}" if drawn.startswith("_") else drawn


def short_label(text: str, longest: int) -> str:
    """`plain` text of at most `longest` characters, cut with an ellipsis."""
    return shorten(plain(text), longest)


def make_figure(width: float, height: float, *, dpi: int = DPI) -> Figure:
    """A figure of so many inches on an Agg canvas, known to no pyplot state."""
    figure = Figure(figsize=(width, height), dpi=dpi)
    FigureCanvasAgg(figure)
    return figure


def margins(figure: Figure, *, left: float, right: float, top: float, bottom: float) -> None:
    """Set the room around all axes in inches, which stays readable at every figure size."""
    width, height = figure.get_size_inches()
    figure.subplots_adjust(
        left=left / width, right=1 - right / width, bottom=bottom / height, top=1 - top / height
    )


@contextmanager
def framed(
    width: float,
    height: float,
    lines: int = 1,
    columns: int = 1,
    *,
    left: float = 0.75,
    right: float = 0.2,
    top: float = 0.45,
    bottom: float = 0.55,
    **shared: Any,
) -> Iterator[tuple[Figure, Any]]:
    """A figure and its grid of axes in the house style; sizes and margins in inches."""
    with house_style():
        figure = make_figure(width, height)
        grid = figure.subplots(lines, columns, squeeze=False, **shared)
        margins(figure, left=left, right=right, top=top, bottom=bottom)
        yield figure, grid


def room(low: float, high: float, share: float) -> float:
    """The space beyond the ends of what is drawn, also where that is a single value."""
    return share * (high - low) or 0.02 * abs(high) or 1.0


def limits(values: np.ndarray, share: float) -> tuple[float, float]:
    """Both ends of an axis with room beyond what is drawn."""
    low, high = float(values.min()), float(values.max())
    return low - room(low, high, share), high + room(low, high, share)


def shared_legend(figure: Figure) -> None:
    """One legend above all panels, every mark in it once."""
    handles = {
        label: handle
        for axes in figure.axes
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    if handles:
        figure.legend(list(handles.values()), list(handles), loc="upper right", ncols=6)


def cost_axes(axes: Axes, x: str, y: str, show: Callable[[float], str] = compact) -> None:
    """Label axes of costs to the right and nats upwards, with few ticks and a grid."""
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: show(value)))
    axes.yaxis.set_major_locator(MaxNLocator(6))
    axes.ticklabel_format(axis="y", useOffset=False)
    axes.grid()


def pi_bar(figure: Figure, box: tuple[float, float, float, float]) -> Axes:
    """A colour bar for pi; `box` is left, bottom, width and height as shares of the figure."""
    mapped = ScalarMappable(Normalize(0, 1), cmap=PI_MAP)
    bar = figure.colorbar(mapped, cax=figure.add_axes(box), ticks=[0, 0.5, 1], label="pi")
    bar.outline.set_visible(False)
    return bar.ax


def panel_columns(slots: int) -> int:
    """Panels side by side, so that they stay readable and fill their rows."""
    for most, columns in ((4, slots), (6, 3), (12, 4), (24, 6)):
        if slots <= most:
            return columns
    return 8


def step_axis(axes: Axes, first: float, last: float, ticks: int = 6) -> None:
    """Show whole steps from `first` to `last`, in thousands where they are many."""
    room = 0.5 if first == last else 0.0
    axes.set_xlim(first - room, last + room)
    axes.xaxis.set_major_locator(
        MaxNLocator(ticks, steps=[1, 2, 2.5, 5, 10], integer=True, min_n_ticks=1)
    )
    thousands = last >= 10_000
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda x, _: f"{x / 1000:g}k" if thousands and x else f"{x:g}")
    )


def png(figure: Figure) -> bytes:
    """The figure as PNG bytes; the same figure gives the same bytes."""
    buffer = io.BytesIO()
    with house_style():
        figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
    return buffer.getvalue()


def stairs(x_N: np.ndarray, y_N: np.ndarray) -> np.ndarray:
    """Points along the front's stairs, near enough to each other to keep names off the line."""
    order = np.lexsort((y_N, x_N))
    x_N, y_N = x_N[order], y_N[order]
    x_S = np.repeat(x_N, 2)[1:]
    y_S = np.repeat(y_N, 2)[:-1]
    at = np.arange(len(x_S))
    fine = np.linspace(0, len(x_S) - 1, 12 * max(len(x_S) - 1, 0) + 1)
    return np.column_stack([np.interp(fine, at, x_S), np.interp(fine, at, y_S)])


def name_points(
    axes: Axes,
    names: Sequence[str],
    x: np.ndarray,
    y: np.ndarray,
    others_N2: np.ndarray | None = None,
) -> None:
    """Write each name where it covers neither a mark, one of `others_N2` too, nor another name.

    The limits of the axes must be set: they say where the marks will be.
    """
    canvas: Any = axes.figure.canvas
    renderer = canvas.get_renderer()
    marks_pixels = axes.transData.transform(np.column_stack([x, y]))
    taken = [Bbox.from_extents(u - 9, v - 9, u + 9, v + 9) for u, v in marks_pixels]
    if others_N2 is not None and len(others_N2):
        for u, v in axes.transData.transform(others_N2):
            taken.append(Bbox.from_extents(u - 5, v - 5, u + 5, v + 5))
    inside = axes.get_window_extent(renderer)
    for index in np.lexsort((x, y)):
        label = axes.annotate(
            short_label(str(names[index]), 26),
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


def _place(label: Annotation, offset: tuple[int, int]) -> None:
    right, up = offset
    label.set_position(offset)
    label.set_horizontalalignment("left" if right > 0 else "right" if right else "center")
    label.set_verticalalignment("bottom" if up > 0 else "top" if up else "center")
