"""Figures of a search: where pi went, and how sure it became.

N recorded steps, L slots, C candidates.
"""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from report.animation import write_animation
from report.curves import curves
from report.grid import pi_grid
from report.panels import (
    MOST_POINTS,
    line_handles,
    mark_start,
    pi_axes,
    short_name,
    slot_panels,
    start_handles,
)
from report.quantities import entropy_share, margin, thin
from report.runs import Trajectory, read_metrics, read_trajectory
from report.style import (
    PI_MAP,
    colours,
    dashes,
    house_style,
    make_figure,
    margins,
    plain,
    png,
    step_axis,
)
from utils.files import write_whole
from utils.text import shorten


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
        if len(trajectory.step_N):
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
    share_NL, margin_NL = entropy_share(pi_NLC), margin(pi_NLC)
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
