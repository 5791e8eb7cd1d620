"""Figures of a search: where pi went and how sure it became, also as an animated GIF.

N recorded steps   L slots   C candidates
"""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize, to_hex
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.text import Text
from PIL import Image

from report.curves import curves
from report.panels import (
    MOST_POINTS,
    line_handles,
    mark_start,
    pi_axes,
    short_name,
    slot_panels,
    start_handles,
)
from report.plotting import (
    DPI,
    INK,
    PI_MAP,
    colours,
    dashes,
    house_style,
    make_figure,
    margins,
    plain,
    png,
    step_axis,
    text_on,
)
from report.run_files import (
    Trajectory,
    frame_rows,
    read_metrics,
    read_trajectory,
    thin,
)
from utils.files import write_whole
from utils.pi import entropy
from utils.pi import margins as pi_margins
from utils.text import shorten

SLOTS_PER_ROW = 16
_CELL_WIDTH, _CELL_HEIGHT = 0.5, 0.36
_LEFT, _RIGHT, _TOP, _BETWEEN, _BOTTOM = 1.25, 0.75, 0.46, 0.32, 0.46
_LABEL_LENGTH = 15
_NARROWEST = 5.4
_TIE = 1e-6
MOST_FRAMES = 40
_FRAME_MS, _LAST_FRAME_MS = 160, 2500
_DPI = 100
SEARCH_FIGURES = {  # file name: what it shows, in the order of the page
    "pi_final.png": "The last pi; the likeliest kind of each slot is bold.",
    "pi.gif": "pi over the steps; the number stands in the likeliest cell.",
    "pi_lines.png": "pi over the steps, one panel per slot, titled with its likeliest kind.",
    "pi_over_time.png": "pi over the steps, one panel per candidate.",
    "schedule.png": "tau; mean entropy of pi over the slots as a share of the uniform one, with "
    "its range; lead of the likeliest candidate over the second.",
    "curves.png": "Perplexity of the SuperNet; one-hot keeps only each slot's likeliest candidate, "
    "and begins with alpha's first step.",
}


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


def write_animation(trajectory: Trajectory, path: Path, *, most_frames: int = MOST_FRAMES) -> Path:
    """Write pi over the steps as a GIF that plays for ever and rests on its last frame."""
    rows = frame_rows(trajectory.step_N, trajectory.alpha_start, min(most_frames, MOST_FRAMES))
    with house_style():
        grid = pi_grid(trajectory.pi_NLC.shape[1], trajectory.labels, dpi=_DPI)
        frames = list(_frames(grid, trajectory, rows))
    palette = _palette()
    images = [
        Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE)
        for frame in frames
    ]
    buffer = io.BytesIO()
    images[0].save(
        buffer,
        format="GIF",
        save_all=True,
        append_images=images[1:],
        duration=[_FRAME_MS] * (len(images) - 1) + [_LAST_FRAME_MS],
        loop=0,
        disposal=1,
    )
    return write_whole(path, buffer.getvalue())


def _palette() -> Image.Image:
    """The colours of pi and the greys of text, one palette for all frames.

    With palettes of their own the frames would flicker.
    """
    cells = colormaps[PI_MAP](np.linspace(0, 1, 160), bytes=True)[:, :3]
    # Pillow looks colours up in coarse steps: nearer greys would take the place of white.
    greys = np.linspace(0, 255, 24).round().astype(np.uint8)[:, None].repeat(3, axis=1)
    image = Image.new("P", (1, 1))
    image.putpalette(np.concatenate([cells, greys]).tobytes())
    return image


def _frames(grid: Grid, trajectory: Trajectory, rows: np.ndarray) -> Iterator[np.ndarray]:
    """RGB frames. Only what changes is drawn anew, which takes a tenth of a whole drawing."""
    canvas: Any = grid.figure.canvas
    moving: list[Artist] = [image for _, image in grid.bands]
    moving += [*grid.borders, grid.title, *(text for texts in grid.text_CL for text in texts)]
    for artist in moving:
        artist.set_animated(True)
    canvas.draw()
    background = canvas.copy_from_bbox(grid.figure.bbox)
    renderer = canvas.get_renderer()
    for row in rows:
        grid.show(trajectory.pi_NLC[row], _title(trajectory, int(row)), only_likeliest=True)
        canvas.restore_region(background)
        for artist in moving:
            artist.draw(renderer)
        yield np.asarray(canvas.buffer_rgba())[..., :3].copy()


def _title(trajectory: Trajectory, row: int) -> str:
    step, tau = int(trajectory.step_N[row]), float(trajectory.tau_N[row])
    # Padded, so that the text does not jump.
    return f"step {step:>{len(str(int(trajectory.step_N[-1])))}}   tau {tau:.2f}"


def write_search_figures(search_folder: Path) -> list[Path]:
    """Write every figure the files of one search seed allow into its `figures/`.

    Raises:
        ValueError: a file of the run is damaged.
    """
    folder = search_folder / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    written, alpha_start = [], 0
    if (search_folder / "pi.npz").exists():
        trajectory = read_trajectory(search_folder / "pi.npz")
        alpha_start = trajectory.alpha_start
        for name, draw in _FIGURES.items():
            written.append(write_whole(folder / name, png(draw(trajectory))))
        written.append(write_animation(trajectory, folder / "pi.gif"))
    if (search_folder / "metrics.jsonl").exists():
        metrics = read_metrics(search_folder / "metrics.jsonl")
        if len(metrics):
            written.append(write_whole(folder / "curves.png", png(curves(metrics, alpha_start))))
    return written


def heat_map(trajectory: Trajectory) -> Figure:
    """The last pi, slots by candidates, with the numbers; the likeliest ones are bold."""
    with house_style():
        grid = pi_grid(trajectory.pi_NLC.shape[1], trajectory.labels)
        title = f"pi at step {int(trajectory.step_N[-1])}"
        grid.show(trajectory.pi_NLC[-1], title, only_likeliest=False)
    return grid.figure


def heat_maps_over_time(trajectory: Trajectory) -> Figure:
    """Pi of every slot over the steps, one panel per candidate."""
    rows = thin(len(trajectory.step_N), MOST_POINTS)
    step_N, pi_NLC = trajectory.step_N[rows], trajectory.pi_NLC[rows]
    slots, candidates = pi_NLC.shape[1:]
    columns = min(candidates, 4)
    lines = -(-candidates // columns)
    height = min(max(0.2 * slots, 1.3), 4.5)
    with house_style():
        figure = make_figure(1.6 + max(2.75 * columns, 4.0), 0.6 + lines * (height + 0.45) + 0.2)
        axes_grid = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
        margins(figure, left=0.6, right=0.95, top=0.42, bottom=0.5)
        figure.subplots_adjust(wspace=0.07, hspace=0.45 / height)
        for index, axes in enumerate(axes_grid.flat):
            if index >= candidates:
                axes.remove()
                continue
            axes.pcolormesh(
                cell_edges(step_N),
                np.arange(slots + 1) - 0.5,
                pi_NLC[:, :, index].T,
                cmap=PI_MAP,
                vmin=0,
                vmax=1,
                rasterized=True,
            )
            axes.set_title(shorten(plain(trajectory.labels[index]), 28), loc="left")
            below = index + columns >= candidates
            mark_start(axes, trajectory, "white")
            _finish_map(axes, step_N, slots, below=below, first=index % columns == 0)
        _bar_beside(figure, axes_grid[0, -1])
    return figure


def _finish_map(axes: Axes, step_N: np.ndarray, slots: int, *, below: bool, first: bool) -> None:
    step_axis(axes, float(cell_edges(step_N)[0]), float(cell_edges(step_N)[-1]), ticks=4)
    axes.set_ylim(slots - 0.5, -0.5)
    axes.set_yticks(range(0, slots, 1 if slots <= 12 else 4))
    axes.tick_params(labelbottom=below, labelleft=first, left=first, length=2.5)
    if below:
        axes.set_xlabel("step")
    if first:
        axes.set_ylabel("slot")


def _bar_beside(figure: Figure, axes: Axes) -> None:
    """A colour bar for pi at the right of `axes`."""
    width = figure.get_size_inches()[0]
    box = axes.get_position()
    bar_axes = figure.add_axes((box.x1 + 0.14 / width, box.y0, 0.11 / width, box.height))
    mapped = ScalarMappable(Normalize(0, 1), cmap=colormaps[PI_MAP])
    bar = figure.colorbar(mapped, cax=bar_axes, ticks=[0, 0.5, 1], label="pi")
    bar.outline.set_visible(False)


def cell_edges(step_N: np.ndarray) -> np.ndarray:
    """Borders half way between neighbouring steps, for cells that need not be equally wide."""
    step_N = step_N.astype(np.float64)
    if len(step_N) == 1:
        return np.array([step_N[0] - 0.5, step_N[0] + 0.5])
    middle = (step_N[1:] + step_N[:-1]) / 2
    return np.concatenate([step_N[:1], middle, step_N[-1:]])


def line_plots(trajectory: Trajectory) -> Figure:
    """Pi over the steps, one small panel per slot, one line per candidate."""
    handles = [*line_handles(trajectory.labels), *start_handles(trajectory)]
    slots = trajectory.pi_NLC.shape[1]
    return slot_panels(slots, handles, partial(_line_panel, trajectory))


def _line_panel(trajectory: Trajectory, axes: Axes, slot: int, wide: bool) -> None:
    rows = thin(len(trajectory.step_N), MOST_POINTS)
    step_N, pi_NC = trajectory.step_N[rows], trajectory.pi_NLC[rows, slot]
    best = int(pi_NC[-1].argmax())
    words = f"{short_name(trajectory.labels[best], wide)} {pi_NC[-1, best]:.2f}"
    pi_axes(axes, step_N, trajectory.labels, slot, words, wide)
    hue = colours(trajectory.labels)
    mark_start(axes, trajectory)
    shape: dict[str, Any] = {"linewidth": 1.6 if wide else 1.2}
    if len(step_N) == 1:
        shape |= {"marker": "o", "markersize": 4}
    for i, label in enumerate(trajectory.labels):
        axes.plot(step_N, pi_NC[:, i], color=hue[label], linestyle=dashes(i), **shape)


def schedule(trajectory: Trajectory) -> Figure:
    """tau, and how sure pi is: entropy and the lead of the likeliest candidate, over the steps."""
    rows = thin(len(trajectory.step_N), MOST_POINTS)
    step_N, pi_NLC = trajectory.step_N[rows], trajectory.pi_NLC[rows]
    pi_NLC = pi_NLC.astype(np.float64)
    # One candidate has no entropy, and nothing to divide it by.
    share_NL = entropy(pi_NLC) / np.log(max(pi_NLC.shape[2], 2))
    margin_NL = pi_margins(pi_NLC)
    with house_style():
        figure = make_figure(9.6, 2.55)
        panels = figure.subplots(1, 3)
        margins(figure, left=0.5, right=0.2, top=0.38, bottom=0.5)
        figure.subplots_adjust(wspace=0.22)
        marker = "o" if len(step_N) == 1 else ""
        panels[0].plot(step_N, trajectory.tau_N[rows], color="#332288", marker=marker)
        panels[0].set_title("tau", loc="left")
        panels[0].set_ylim(0, 1.08 * max(float(trajectory.tau_N.max()), 1e-9))
        spread = {"color": "#0072b2", "alpha": 0.16, "linewidth": 0}
        panels[1].fill_between(
            step_N, share_NL.min(1), share_NL.max(1), label="all slots", **spread
        )
        panels[1].plot(step_N, share_NL.mean(1), color="#0072b2", marker=marker, label="mean")
        panels[1].set_title("entropy of pi / entropy of uniform", loc="left")
        panels[2].plot(step_N, margin_NL.mean(1), color="#009e73", marker=marker, label="mean")
        panels[2].plot(
            step_N, margin_NL.min(1), color="#d55e00", ls="--", marker=marker, label="smallest"
        )
        panels[2].set_title("pi of the first - pi of the second", loc="left")
        for index, axes in enumerate(panels):
            if index:
                axes.set_ylim(-0.03, 1.06)
                axes.legend(loc="best", handlelength=1.6)
            axes.grid(axis="y")
            axes.set_xlabel("step")
            mark_start(axes, trajectory)
            step_axis(axes, float(step_N[0]), float(step_N[-1]), ticks=5)
    return figure


_FIGURES = {
    "pi_final.png": heat_map,
    "pi_over_time.png": heat_maps_over_time,
    "pi_lines.png": line_plots,
    "schedule.png": schedule,
}
