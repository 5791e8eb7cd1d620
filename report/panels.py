"""Pi over the steps, one small panel per slot: of one search, and of several together.

R searches, N recorded steps, L slots, C candidates.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from report.plotting import (
    BAND_OPACITY,
    FAINT,
    colours,
    dashes,
    house_style,
    make_figure,
    margins,
    short_label,
    step_axis,
)
from report.run_files import Trajectory, thin

# More than a panel has pixels.
MOST_POINTS = 400
_WIDE = 2.0  # inches


def line_plots(*trajectories: Trajectory) -> Figure:
    """One line per candidate; of several searches the mean, with all of them as a band.

    A title names the candidate of the largest pi at the end, and how many searches chose it.
    """
    first = trajectories[0]
    rows, labels = thin(len(first.step_N), MOST_POINTS), first.labels
    step_N = first.step_N[rows]
    pi_RNLC = np.stack([trajectory.pi_NLC[rows] for trajectory in trajectories])
    hue = colours(labels)

    def draw(axes: Axes, slot: int, wide: bool) -> None:
        pi_RNC = pi_RNLC[:, :, slot]
        mean_NC = pi_RNC.mean(axis=0)
        most = int(mean_NC[-1].argmax())
        words = f"{_short_name(labels[most], wide)} {mean_NC[-1, most]:.2f}"
        if len(trajectories) > 1:
            votes = int((pi_RNC[:, -1].argmax(axis=1) == most).sum())
            words += f", {votes} of {len(trajectories)}"
        _pi_axes(axes, step_N, labels, slot, words, wide)
        mark_start(axes, first)
        shape: dict[str, Any] = {"linewidth": 1.6 if wide else 1.2}
        if len(step_N) == 1:
            shape |= {"marker": "o", "markersize": 4}
        for i, label in enumerate(labels):
            if len(trajectories) > 1:
                low_N, high_N = pi_RNC[:, :, i].min(0), pi_RNC[:, :, i].max(0)
                band: dict[str, Any] = {"color": hue[label], "alpha": BAND_OPACITY, "linewidth": 0}
                axes.fill_between(step_N, low_N, high_N, **band)
            axes.plot(step_N, mean_NC[:, i], color=hue[label], linestyle=dashes(i), **shape)

    return _slot_panels(first, draw)


def _slot_panels(trajectory: Trajectory, draw: Callable[[Axes, int, bool], None]) -> Figure:
    """A legend above one panel per slot; `draw` gets axes, slot, and whether panels are wide."""
    slots = trajectory.pi_NLC.shape[1]
    handles = _legend_lines(trajectory)
    columns = panel_columns(slots)
    lines = -(-slots // columns)
    panel = 5.4 if columns == 1 else 9.6 / columns if columns > 3 else 3.0
    width, height = 0.65 + panel * columns + 0.15, max(0.95, 0.55 * panel)
    with house_style():
        legend_columns = max(1, min(len(handles), int(width / 1.45)))
        legend_height = 0.24 * -(-len(handles) // legend_columns) + 0.14
        figure = make_figure(width, legend_height + lines * (height + 0.3) + 0.44)
        axes_grid = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
        margins(figure, left=0.65, right=0.15, top=legend_height + 0.2, bottom=0.5)
        figure.subplots_adjust(wspace=0.1, hspace=0.3 / height)
        for slot, axes in enumerate(axes_grid.flat):
            if slot >= slots:
                axes.remove()
                continue
            draw(axes, slot, panel >= _WIDE)
            axes.tick_params(labelbottom=slot + columns >= slots)
            if slot + columns >= slots:
                axes.set_xlabel("step")
            if slot % columns == 0:
                axes.set_ylabel("pi")
        figure.legend(handles=handles, loc="upper center", ncols=legend_columns, borderpad=0.2)
    return figure


def panel_columns(slots: int) -> int:
    """Panels side by side, so that they stay readable and fill their rows."""
    for most, columns in ((4, slots), (6, 3), (12, 4), (24, 6)):
        if slots <= most:
            return columns
    return 8


def _legend_lines(trajectory: Trajectory) -> list[Line2D]:
    hue = colours(trajectory.labels)
    handles = [
        Line2D([], [], color=hue[label], linestyle=dashes(i), label=short_label(label, 18))
        for i, label in enumerate(trajectory.labels)
    ]
    handles.append(Line2D([], [], color=FAINT, linestyle=":", linewidth=0.9, label="uniform"))
    if _starts_late(trajectory):
        start = Line2D([], [], color=FAINT, linestyle="--", linewidth=0.9, label="alpha starts")
        handles.append(start)
    return handles


def mark_start(axes: Axes, trajectory: Trajectory) -> None:
    """Draw a line at alpha's first step, where that is not the first of all."""
    if _starts_late(trajectory):
        axes.axvline(trajectory.alpha_start, color=FAINT, linestyle="--", linewidth=0.9)


def _starts_late(trajectory: Trajectory) -> bool:
    return trajectory.moves and trajectory.alpha_start > int(trajectory.step_N[0])


def _pi_axes(
    axes: Axes, step_N: np.ndarray, labels: Sequence[str], slot: int, words: str, wide: bool
) -> None:
    axes.axhline(1 / len(labels), color=FAINT, linestyle=":", linewidth=0.9)
    title = f"{'slot ' if wide else ''}{slot}: {words}"
    axes.set_title(title, loc="left", fontsize=8.5 if wide else 7.5, pad=3)
    axes.set_ylim(-0.03, 1.03)
    axes.set_yticks([0, 0.5, 1], ["0", "0.5", "1"])
    axes.grid(axis="y")
    step_axis(axes, float(step_N[0]), float(step_N[-1]), ticks=5 if wide else 3)


def _short_name(label: str, wide: bool) -> str:
    return short_label(label, 24 if wide else 11)
