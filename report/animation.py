"""The search as an animated GIF: slots by candidates, the number in the likeliest cell."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.artist import Artist
from PIL import Image

from report.grid import Grid, pi_grid
from report.quantities import frame_rows
from report.runs import Trajectory
from report.style import PI_MAP, house_style
from utils.files import write_whole

MOST_FRAMES = 40
_FRAME_MS, _LAST_FRAME_MS = 160, 2500
_DPI = 100


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
