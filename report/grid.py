"""A grid of slots by candidates, wrapped like text where there are many slots."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize, to_hex
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.text import Text

from report.style import DPI, INK, PI_MAP, make_figure, plain, text_on
from utils.text import shorten

SLOTS_PER_ROW = 16
_CELL_WIDTH, _CELL_HEIGHT = 0.5, 0.36
_LEFT, _RIGHT, _TOP, _BETWEEN, _BOTTOM = 1.25, 0.75, 0.46, 0.32, 0.46
_LABEL_LENGTH = 15
_NARROWEST = 5.4
_TIE = 1e-6


@dataclass(frozen=True)
class Grid:
    """The drawn parts that change when pi changes."""

    figure: Figure
    title: Text
    bands: tuple[tuple[int, AxesImage], ...]  # first slot of the band, its image
    borders: tuple[LineCollection, ...]
    text_CL: tuple[tuple[Text, ...], ...]

    def show(self, pi_LC: np.ndarray, title: str, *, only_likeliest: bool) -> None:
        """Colour the cells by pi and write numbers into them."""
        self.title.set_text(title)
        for first, image in self.bands:
            image.set_data(pi_LC[first : first + SLOTS_PER_ROW].T)
        ahead_LC = pi_LC >= pi_LC.max(axis=1, keepdims=True) - _TIE
        for candidate, row in enumerate(self.text_CL):
            for slot, text in enumerate(row):
                value = float(pi_LC[slot, candidate])
                ahead = bool(ahead_LC[slot, candidate])
                # Of candidates that stand level none is the choice.
                likeliest = ahead and int(ahead_LC[slot].sum()) == 1
                shown = ahead or not only_likeliest
                text.set_visible(shown)
                if shown:
                    text.set_text(f"{value:.2f}")
                    text.set_color(_ink_on(round(255 * value)))
                    text.set_fontweight("bold" if likeliest else "normal")


@cache
def _ink_on(level: int) -> str:
    """The colour of text in a cell, of 256 levels of pi."""
    return text_on(to_hex(colormaps[PI_MAP](level)))


def pi_grid(slots: int, labels: Sequence[str], *, dpi: int = DPI) -> Grid:
    """An empty grid with its axes, labels and colour bar."""
    rows = -(-slots // SLOTS_PER_ROW)
    columns = min(slots, SLOTS_PER_ROW)
    band_height = len(labels) * _CELL_HEIGHT
    width = max(_LEFT + columns * _CELL_WIDTH + _RIGHT, _NARROWEST)
    height = _TOP + rows * (band_height + _BETWEEN) - _BETWEEN + _BOTTOM
    figure = make_figure(width, height, dpi=dpi)
    title = figure.text(_LEFT / width, 1 - 0.17 / height, "", va="top", ha="left", fontsize=10)
    bands, borders, text_CL = [], list[LineCollection](), [list[Text]() for _ in labels]
    for row in range(rows):
        first = row * SLOTS_PER_ROW
        shown = min(SLOTS_PER_ROW, slots - first)
        top = height - _TOP - row * (band_height + _BETWEEN)
        box = (_LEFT, top - band_height, shown * _CELL_WIDTH, band_height)
        axes = _band_axes(figure, box, first, shown, labels)
        if row == rows - 1:
            axes.set_xlabel("slot")
        image = axes.imshow(
            np.zeros((len(labels), shown)), cmap=PI_MAP, vmin=0, vmax=1, aspect="auto"
        )
        bands.append((first, image))
        borders += _cell_borders(axes, shown, len(labels))
        for candidate, texts in enumerate(text_CL):
            texts += [
                axes.text(x, candidate, "", ha="center", va="center", fontsize=8.5)
                for x in range(shown)
            ]
    right = _LEFT + columns * _CELL_WIDTH + 0.14
    _colour_bar(figure, (right, height - _TOP - band_height, 0.11, band_height))
    texts_CL = tuple(tuple(texts) for texts in text_CL)
    return Grid(figure, title, tuple(bands), tuple(borders), texts_CL)


def _add_axes(figure: Figure, box_inches: tuple[float, float, float, float]) -> Axes:
    width, height = figure.get_size_inches()
    x, y, w, h = box_inches
    return figure.add_axes((x / width, y / height, w / width, h / height))


def _band_axes(
    figure: Figure,
    box_inches: tuple[float, float, float, float],
    first: int,
    shown: int,
    labels: Sequence[str],
) -> Axes:
    axes = _add_axes(figure, box_inches)
    axes.set_xticks(range(shown), [str(first + x) for x in range(shown)])
    axes.set_yticks(range(len(labels)), [shorten(plain(name), _LABEL_LENGTH) for name in labels])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return axes


def _cell_borders(axes: Axes, columns: int, rows: int) -> list[LineCollection]:
    across, down = np.arange(1, columns) - 0.5, np.arange(1, rows) - 0.5
    return [
        axes.vlines(across, -0.5, rows - 0.5, color="white", linewidth=1.5),
        axes.hlines(down, -0.5, columns - 0.5, color="white", linewidth=1.5),
    ]


def _colour_bar(figure: Figure, box_inches: tuple[float, float, float, float]) -> None:
    axes = _add_axes(figure, box_inches)
    bar = figure.colorbar(
        ScalarMappable(Normalize(0, 1), cmap=PI_MAP), cax=axes, ticks=[0, 0.5, 1], label="pi"
    )
    bar.ax.tick_params(length=2, labelsize=7.5, color=INK)
    bar.outline.set_visible(False)
