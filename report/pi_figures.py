"""Pi over the steps of one search and of several: lines by block, the last pi, an animated GIF.

R searches, N recorded steps, L slots, C candidates.
"""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from PIL import Image

from report.plotting import (
    BAND_OPACITY,
    FAINT,
    INK,
    PI_MAP,
    colours,
    dashes,
    framed,
    house_style,
    panel_columns,
    short_label,
    step_axis,
    text_on,
)
from report.run_files import Trajectory, frame_rows
from utils.files import write_whole
from utils.pi import thin

MOST_POINTS = 400  # more than a panel has pixels
_WIDE = 2.0  # inches of a panel
SLOTS_PER_ROW = 16
_CELL_WIDTH, _CELL_HEIGHT = 0.5, 0.36  # inches, as the next ones
_LEFT, _RIGHT, _TOP, _BETWEEN, _BOTTOM = 1.5, 0.8, 0.46, 0.34, 0.5
_NARROWEST = 4.1  # beside the labels
_TIE = 1e-6
MOST_FRAMES = 40
_FRAME_MS, _LAST_FRAME_MS = 160, 2500
_ANIMATION_DPI = 100


def line_plots(*trajectories: Trajectory) -> Figure:
    """One panel per block with one line per candidate; of several searches the mean, with a band.

    A title names the candidate of the largest pi at the end, and how many searches chose it.
    """
    first, searches = trajectories[0], len(trajectories)
    rows, labels, slots = thin(len(first.step_N), MOST_POINTS), first.labels, first.pi_NLC.shape[1]
    step_N, hue = first.step_N[rows], colours(first.labels)
    pi_RNLC = np.stack([trajectory.pi_NLC[rows] for trajectory in trajectories])
    columns = panel_columns(slots)
    lines = -(-slots // columns)
    panel = 5.4 if columns == 1 else 9.6 / columns if columns > 3 else 3.0
    width, height, wide = 0.65 + panel * columns + 0.15, max(0.95, 0.55 * panel), panel >= _WIDE
    handles = _legend_lines(first)
    legend_columns = max(1, min(len(handles), int(width / 1.85)))
    top = 0.24 * -(-len(handles) // legend_columns) + 0.58
    shape: dict[str, Any] = {"linewidth": 1.6 if wide else 1.2}
    shape |= {"marker": "o", "markersize": 4} if len(step_N) == 1 else {}
    with framed(
        width, top + lines * (height + 0.3) + 0.24, lines, columns,
        left=0.65, right=0.15, top=top, bottom=0.5, sharex=True, sharey=True,
    ) as (figure, grid):  # fmt: skip
        figure.subplots_adjust(wspace=0.1, hspace=0.3 / height)
        for slot, axes in enumerate(grid.flat):
            if slot >= slots:
                axes.remove()
                continue
            pi_RNC = pi_RNLC[:, :, slot]
            mean_NC, low_NC, high_NC = pi_RNC.mean(0), pi_RNC.min(0), pi_RNC.max(0)
            axes.axhline(1 / len(labels), color=FAINT, linestyle=":", linewidth=0.9)
            mark_start(axes, first)
            for i, label in enumerate(labels):
                if searches > 1:
                    band: dict[str, Any] = {"color": hue[label], "alpha": BAND_OPACITY}
                    axes.fill_between(step_N, low_NC[:, i], high_NC[:, i], linewidth=0, **band)
                axes.plot(step_N, mean_NC[:, i], color=hue[label], linestyle=dashes(i), **shape)
            most = int(mean_NC[-1].argmax())
            words, ahead = f"{'block ' if wide else ''}{slot}", bool(np.ptp(mean_NC[-1]))
            if ahead:
                label = short_label(labels[most], 22 if wide else 11)
                words += f": {label} {mean_NC[-1, most]:.2f}"
            if ahead and searches > 1:
                votes = int((pi_RNC[:, -1].argmax(axis=1) == most).sum())
                words += f", {votes} of {searches}"
            axes.set_title(words, loc="left", fontsize=9.5 if wide else 8.5, pad=3)
            axes.set_ylim(-0.03, 1.03)
            axes.set_yticks([0, 0.5, 1], ["0", "0.5", "1"])
            axes.grid(axis="y")
            step_axis(axes, float(step_N[0]), float(step_N[-1]), ticks=5 if wide else 3)
            axes.tick_params(labelbottom=slot + columns >= slots)
            axes.set_xlabel("step" if slot + columns >= slots else "")
            axes.set_ylabel("" if slot % columns else "probability")
        figure.legend(handles=handles, loc="upper center", ncols=legend_columns, borderpad=0.2)
        figure.suptitle(
            "Which kind does the search prefer in each block?", fontsize=10.5,
            x=0.65 / width, y=1 - (top - 0.28) / figure.get_figheight(), ha="left", va="bottom",
        )  # fmt: skip
    return figure


def _legend_lines(trajectory: Trajectory) -> list[Line2D]:
    hue = colours(trajectory.labels)
    handles = [
        Line2D([], [], color=hue[label], linestyle=dashes(i), label=short_label(label, 18))
        for i, label in enumerate(trajectory.labels)
    ]
    marks = {"equally likely": ":", "choosing starts": "--"}
    faint: dict[str, Any] = {"color": FAINT, "linewidth": 0.9}
    return [*handles, *(Line2D([], [], ls=ls, label=words, **faint) for words, ls in marks.items())]


def mark_start(axes: Axes, trajectory: Trajectory) -> None:
    """Draw a line at alpha's first step, which is to be seen where that was reached."""
    axes.axvline(trajectory.alpha_start, color=FAINT, linestyle="--", linewidth=0.9)


def heat_map(trajectory: Trajectory) -> Figure:
    """The last pi, slots by candidates, with the numbers; the likeliest ones are bold."""
    grid = pi_grid(trajectory.pi_NLC.shape[1], trajectory.labels)
    title = f"Which kind is likeliest in each block? (step {int(trajectory.step_N[-1])})"
    grid.show(trajectory.pi_NLC[-1], title, only_likeliest=False)
    return grid.figure


@dataclass(frozen=True)
class Grid:
    """The drawn parts that change when pi changes; a mesh for each line of slots."""

    figure: Figure
    title: Text
    meshes: list[QuadMesh]
    text_LC: list[list[Text]]

    def show(self, pi_LC: np.ndarray, title: str, *, only_likeliest: bool) -> None:
        """Colour the cells by pi and write numbers into them."""
        self.title.set_text(title)
        for line, mesh in enumerate(self.meshes):
            mesh.set_array(pi_LC[line * SLOTS_PER_ROW : (line + 1) * SLOTS_PER_ROW].T)
        for pi_C, texts in zip(pi_LC, self.text_LC, strict=True):
            ahead_C = pi_C >= pi_C.max() - _TIE
            for value, ahead, text in zip(pi_C.tolist(), ahead_C, texts, strict=True):
                # Of candidates that stand level none is the choice.
                likeliest = ahead and ahead_C.sum() == 1
                text.set_visible(bool(ahead) or not only_likeliest)
                text.set_text(f"{value:.2f}")
                text.set_color(text_on(colormaps[PI_MAP](round(255 * value))))
                text.set_fontweight("bold" if likeliest else "normal")


def pi_grid(slots: int, labels: Sequence[str]) -> Grid:
    """An empty grid with its axes, labels and colour bar."""
    columns, lines = min(slots, SLOTS_PER_ROW), -(-slots // SLOTS_PER_ROW)
    band, right = len(labels) * _CELL_HEIGHT, max(_RIGHT, _NARROWEST - columns * _CELL_WIDTH)
    width = _LEFT + columns * _CELL_WIDTH + right
    height = _TOP + lines * (band + _BETWEEN) - _BETWEEN + _BOTTOM
    meshes, text_LC = [], list[list[Text]]()
    sizes: dict[str, Any] = {"left": _LEFT, "right": right, "top": _TOP, "bottom": _BOTTOM}
    with framed(width, height, lines, **sizes) as (figure, grid):
        figure.subplots_adjust(hspace=_BETWEEN / band)
        title = figure.text(_LEFT / width, 1 - 0.17 / height, "", va="top", fontsize=10)
        for first, axes in zip(range(0, slots, SLOTS_PER_ROW), grid[:, 0], strict=True):
            shown = range(first, min(first + SLOTS_PER_ROW, slots))
            cells = np.zeros((len(labels), len(shown)))
            look = {"cmap": PI_MAP, "vmin": 0, "vmax": 1, "edgecolors": "white", "linewidth": 1.5}
            meshes.append(axes.pcolormesh(cells, **look))
            axes.set_xlim(0, columns)
            axes.set_ylim(len(labels), 0)
            axes.set_xticks(np.arange(len(shown)) + 0.5, map(str, shown))
            axes.set_yticks(np.arange(len(labels)) + 0.5, [short_label(x, 18) for x in labels])
            axes.tick_params(length=0)
            axes.spines[:].set_visible(False)
            place = {"ha": "center", "va": "center", "fontsize": 9}
            text_LC += [
                [axes.text(x + 0.5, y + 0.5, "", **place) for y in range(len(labels))]
                for x in range(len(shown))
            ]
        grid[-1, 0].set_xlabel("block")
        box = grid[0, 0].get_position()
        beside = figure.add_axes((box.x1 + 0.14 / width, box.y0, 0.11 / width, box.height))
        bar = figure.colorbar(meshes[0], beside, ticks=[0, 0.5, 1], label="probability (pi)")
        bar.outline.set_visible(False)
        beside.tick_params(length=2, labelsize=8.5, color=INK)
    return Grid(figure, title, meshes, text_LC)


def write_animation(trajectory: Trajectory, path: Path) -> Path:
    """Write pi over the steps as a GIF that plays for ever and rests on its last frame."""
    rows = frame_rows(trajectory.step_N, trajectory.alpha_start, MOST_FRAMES)
    grid = pi_grid(trajectory.pi_NLC.shape[1], trajectory.labels)
    grid.figure.set_dpi(_ANIMATION_DPI)
    with house_style():
        frames = list(_frames(grid, trajectory, rows))
    how: dict[str, Any] = {"palette": _palette(), "dither": Image.Dither.NONE}
    first, *rest = (Image.fromarray(frame).quantize(**how) for frame in frames)
    duration = [_FRAME_MS] * len(rest) + [_LAST_FRAME_MS]
    buffer = io.BytesIO()
    first.save(
        buffer, "GIF", save_all=True, append_images=rest, duration=duration, loop=0, disposal=1
    )
    return write_whole(path, buffer.getvalue())


def _palette() -> Image.Image:
    """The colours of pi and the greys of text; frames with palettes of their own would flicker."""
    cells = colormaps[PI_MAP](np.linspace(0, 1, 160), bytes=True)[:, :3]
    # Pillow looks colours up in coarse steps: nearer greys would take the place of white.
    greys = np.linspace(0, 255, 24).round().astype(np.uint8)[:, None].repeat(3, axis=1)
    image = Image.new("P", (1, 1))
    image.putpalette(np.concatenate([cells, greys]).tobytes())
    return image


def _frames(grid: Grid, trajectory: Trajectory, rows: np.ndarray) -> Iterator[np.ndarray]:
    """RGB frames. Only what changes is drawn anew, which takes a tenth of a whole drawing."""
    canvas: Any = grid.figure.canvas
    texts = [text for of_slot in grid.text_LC for text in of_slot]
    moving: list[Artist] = [*grid.meshes, grid.title, *texts]
    for artist in moving:
        artist.set_animated(True)
    canvas.draw()
    background = canvas.copy_from_bbox(grid.figure.bbox)
    renderer = canvas.get_renderer()
    digits = len(str(int(trajectory.step_N[-1])))  # padded, so that the text does not jump
    for row in rows:
        step, tau = int(trajectory.step_N[row]), float(trajectory.tau_N[row])
        title = f"Which kind is likeliest? Step {step:>{digits}}, temperature {tau:.2f}"
        grid.show(trajectory.pi_NLC[row], title, only_likeliest=True)
        canvas.restore_region(background)
        for artist in moving:
            artist.draw(renderer)
        yield np.asarray(canvas.buffer_rgba())[..., :3].copy()
