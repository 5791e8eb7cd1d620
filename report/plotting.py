"""Colours, fonts and sizes that all figures share, and names beside points that cover nothing."""

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import wrap
from typing import Any, Literal

import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from matplotlib.typing import ColorType

from report.run_files import tight_layout
from utils.text import compact, shorten

DPI = 130
INK = "#222222"
FAINT = "#8a8a8a"
PI_MAP = "viridis"
HUES = {"chosen": "#aa3377", "baseline": "#444444", "front": "#009e73"}  # layouts by their role
BAND_OPACITY = 0.18  # from the lowest to the highest of several searches

# The kinds of blocks in every figure and stack: Okabe and Ito's colours, told apart with every
# common colour blindness, and darker and paler ones; grey does nothing.
_KINDS = {
    "attention": "#d55e00", "dense": "#0072b2", "identity": "#8a8a8a", "short_conv": "#cc79a7",
    "gated_delta": "#332288", "linear_attention": "#e69f00", "adaptive_span": "#ddcc77",
    "all_attention": "#882255", "persistent": "#999933", "routing": "#117733",
    "mixture_of_experts": "#aa4499", "product_key_memory": "#663300",
}  # fmt: skip
# Of other labels, candidates with settings of their own or layouts; then of kinds that are absent.
_OTHERS = ("#009e73", "#56b4e9", "#000000", *[*_KINDS.values()][3:])
_Dash = Literal["-", "--", "-.", ":"]
_DASHES: tuple[_Dash, ...] = ("-", "--", "-.", ":")

_STYLE = Path(__file__).with_name("house.mplstyle")
# The costs in words, with their units.
COSTS = {
    "latency": "latency of one segment, ms",
    "flops": "FLOPs per token (forward)",
}
# A name is to the right of its mark, or where there is room: sides, and pixels from the mark.
_SIDES = np.array([(1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1), (1, 0.5),
                   (1, -0.5), (-1, 0.5), (-1, -0.5)])  # fmt: skip
_REACHES = (14, 24, 40, 60, 84, 112, 144, 180, 220, 265, 315)


@contextmanager
def house_style() -> Iterator[None]:
    """The figures' settings, whatever the user's own matplotlibrc says, put back afterwards."""
    # Both making and drawing a figure must happen inside: ticks are made when they are drawn.
    with matplotlib.style.context(["default", _STYLE]):
        yield


def colours(labels: Sequence[str]) -> dict[str, str]:
    """One colour per label; the kinds of blocks keep theirs in every figure."""
    hues = {label: _KINDS[label] for label in labels if label in _KINDS}
    free = [hue for hue in _OTHERS if hue not in hues.values()]
    rest = [label for label in labels if label not in hues]
    return hues | {label: free[i % len(free)] for i, label in enumerate(rest)}


def dashes(index: int) -> _Dash:
    """A line style that tells apart what colour alone may not."""
    return _DASHES[index % len(_DASHES)]


def text_on(colour: ColorType) -> str:
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


@contextmanager
def framed(
    width: float,
    height: float,
    lines: int = 1,
    columns: int = 1,
    *,
    left: float = 0.75,
    right: float = 0.2,
    top: float = 0.5,
    bottom: float = 0.55,
    **shared: Any,
) -> Iterator[tuple[Figure, Any]]:
    """A figure and its grid of axes in the house style; sizes and margins in inches.

    The canvas is Agg's, which can measure text, and no pyplot state knows of it.
    """
    with house_style():
        figure = Figure(figsize=(width, height), dpi=DPI)
        FigureCanvasAgg(figure)
        grid = figure.subplots(lines, columns, squeeze=False, **shared)
        across = {"left": left / width, "right": 1 - right / width}
        figure.subplots_adjust(**across, bottom=bottom / height, top=1 - top / height)
        yield figure, grid


def room(low: float, high: float, share: float) -> float:
    """The space beyond the ends of what is drawn, also where that is a single value."""
    return share * (high - low) or 0.02 * abs(high) or 1.0


def limits(values: np.ndarray, share: float) -> tuple[float, float]:
    """Both ends of an axis with room beyond what is drawn."""
    low, high = float(values.min()), float(values.max())
    return low - room(low, high, share), high + room(low, high, share)


def headline(figure: Figure, question: str) -> None:
    """The question that a figure answers, if any, and a legend of all panels, each mark once."""
    if question:
        figure.axes[0].set_title(question, loc="left")
    handles = {
        label: handle
        for axes in figure.axes
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    if handles:
        figure.legend(list(handles.values()), list(handles), loc="upper right", ncols=6)


def cost_axes(axes: Axes, x: str, y: str, show: Callable[[float], str] = compact) -> None:
    """Label axes of costs to the right and perplexity upwards, with few ticks and a grid."""
    axes.set_xlabel(x)
    axes.set_ylabel(f"{y} (lower is better)")
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: show(value)))
    axes.yaxis.set_major_locator(MaxNLocator(6))
    axes.ticklabel_format(axis="y", useOffset=False)
    axes.grid()


def panel_columns(slots: int) -> int:
    """Panels side by side, so that they stay readable and fill their rows."""
    for most, columns in ((4, slots), (6, 3), (12, 4)):
        if slots <= most:
            return columns
    return 6


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
    corner_S2 = np.column_stack([np.repeat(x_N, 2)[1:], np.repeat(y_N, 2)[:-1]])
    between = np.linspace(corner_S2[:-1], corner_S2[1:], 12, endpoint=False, axis=1)
    return np.concatenate([between.reshape(-1, 2), corner_S2[-1:]])


def name_points(
    axes: Axes,
    layouts: Sequence[str],
    x: np.ndarray,
    y: np.ndarray,
    others_N2: np.ndarray,
    names: Sequence[str] = (),
) -> None:
    """Write each layout, and its name above, on no mark, none of `others_N2` and no other name.

    What found room only further away has a line to its mark. The limits of the axes must be set:
    they say where the marks will be.
    """
    parts_P = zip(names or [""] * len(layouts), map(tight_layout, layouts), strict=True)
    lines_P = [[line for part in both for line in wrap(short_label(part, 48), 24)]
               for both in parts_P]  # fmt: skip
    canvas: Any = axes.figure.canvas
    scale, inside = 72 / axes.figure.dpi, axes.get_window_extent().extents
    at_N2 = axes.transData.transform(np.column_stack([x, y]))
    other_N2 = axes.transData.transform(others_N2)
    around = [np.hstack([at_N2 - 9, at_N2 + 9]), np.hstack([other_N2 - 4, other_N2 + 4])]
    taken_T4 = np.concatenate(around)
    look: dict[str, Any] = {"fontsize": 9.5, "ha": "center", "va": "center", "linespacing": 1.0}
    line = {"arrowstyle": "-", "color": FAINT, "linewidth": 0.7, "shrinkA": 1, "shrinkB": 3}
    for index in np.lexsort((x, y)):
        place = float(x[index]), float(y[index])
        probe = axes.text(*place, "\n".join(lines_P[index]), **look)
        half_2 = np.array(probe.get_window_extent(canvas.get_renderer()).size) / 2
        probe.remove()
        beside_S2 = np.array([side * (half_2 + reach) for reach in _REACHES for side in _SIDES])
        low_S2, high_S2 = (at_N2[index] + beside_S2 + sign * half_2 for sign in (-1, 1))
        apart = (low_S2[:, None] >= taken_T4[:, 2:]) | (high_S2[:, None] <= taken_T4[:, :2])
        outside_S = ((low_S2 < inside[:2]) | (high_S2 > inside[2:])).any(axis=1)
        best = int(((~apart.any(axis=2)).sum(axis=1) + 9 * outside_S).argmin())
        axes.annotate(
            probe.get_text(), place, tuple(beside_S2[best] * scale),
            textcoords="offset points", arrowprops=line if best >= 2 * len(_SIDES) else None,
            multialignment=("center", "left", "right")[int(_SIDES[best % len(_SIDES), 0])], **look,
        )  # fmt: skip
        # To cover a name is worse than to cover a mark.
        taken_T4 = np.vstack([taken_T4, *[np.hstack([low_S2[best], high_S2[best]])] * 3])
