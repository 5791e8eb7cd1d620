"""Figures of several searches of one experiment: their mean and their range.

R searches, N recorded steps, L slots, C candidates.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from report.curves import finish_curves, one_panel, validations
from report.panels import (
    MOST_POINTS,
    line_handles,
    mark_start,
    pi_axes,
    short_name,
    slot_panels,
    start_handles,
)
from report.plotting import colours, dashes, house_style, png
from report.run_files import Trajectory, read_metrics, read_trajectory, seed_folders, thin
from utils.files import write_whole

_OPACITY = 0.18
_NETS = {
    "soft": ("validation, soft mixture", "#0072b2"),
    "onehot": ("validation, one-hot", "#d55e00"),
}
SPREAD_FIGURES = {  # file name: what it shows, in the order of the page
    "pi_seeds.png": "pi over the steps: mean over the searches, lowest to highest.",
    "curves_seeds.png": "Perplexity of the SuperNets: mean over the searches, lowest to highest.",
}


def write_spread_figures(run_folder: Path) -> list[Path]:
    """Write the figures of the run's searches into `search/figures/`; none for fewer than two.

    Raises:
        ValueError: a file of the run is damaged.
    """
    folders = alike(run_folder)
    if len(folders) < 2:
        return []
    trajectories = [read_trajectory(folder / "pi.npz") for folder in folders]
    metrics = [
        read_metrics(folder / "metrics.jsonl")
        for folder in folders
        if (folder / "metrics.jsonl").exists()
    ]
    alpha_start = max(each.alpha_start for each in trajectories)
    figures = {
        "pi_seeds.png": pi_spread(trajectories),
        "curves_seeds.png": curve_spread(metrics, alpha_start),
    }
    target = run_folder / "search" / "figures"
    target.mkdir(parents=True, exist_ok=True)
    return [write_whole(target / name, png(figure)) for name, figure in figures.items()]


def alike(run_folder: Path) -> list[Path]:
    """Folders of the searches that have the slots, candidates and steps of the longest one."""
    found = {
        folder: read_trajectory(folder / "pi.npz")
        for folder in seed_folders(run_folder / "search")
        if (folder / "pi.npz").exists()
    }
    longest = max((len(each.step_N) for each in found.values()), default=0)
    first = next((each for each in found.values() if len(each.step_N) == longest), None)
    return [
        folder
        for folder, each in found.items()
        if first is not None
        and each.labels == first.labels
        and each.pi_NLC.shape == first.pi_NLC.shape
    ]


def pi_spread(trajectories: Sequence[Trajectory]) -> Figure:
    """One panel per slot; per candidate the mean pi as a line, all searches as a band.

    A title names the candidate of the largest mean pi, and how many searches chose it.
    """
    first = trajectories[0]
    rows_N = thin(len(first.step_N), MOST_POINTS)
    pi_RNLC = np.stack([each.pi_NLC[rows_N] for each in trajectories])

    def draw(axes: Axes, slot: int, wide: bool) -> None:
        _panel(axes, first.labels, first.step_N[rows_N], pi_RNLC[:, :, slot], slot, wide)
        mark_start(axes, first)

    handles = [*line_handles(first.labels), *start_handles(first)]
    return slot_panels(pi_RNLC.shape[2], handles, draw)


def _panel(
    axes: Axes, labels: Sequence[str], step_N: np.ndarray, pi_RNC: np.ndarray, slot: int, wide: bool
) -> None:
    mean_C = pi_RNC[:, -1].mean(axis=0)
    most = int(mean_C.argmax())
    votes = int((pi_RNC[:, -1].argmax(axis=1) == most).sum())
    words = f"{short_name(labels[most], wide)} {mean_C[most]:.2f}, {votes} of {len(pi_RNC)}"
    pi_axes(axes, step_N, labels, slot, words, wide)
    hue = colours(labels)
    for index, label in enumerate(labels):
        pi_RN = pi_RNC[:, :, index]
        _band(axes, step_N, pi_RN.min(0), pi_RN.max(0), hue[label])
        axes.plot(step_N, pi_RN.mean(0), color=hue[label], linestyle=dashes(index))


def _band(axes: Axes, x_N: np.ndarray, low_N: np.ndarray, high_N: np.ndarray, hue: str) -> None:
    axes.fill_between(x_N, low_N, high_N, color=hue, alpha=_OPACITY, linewidth=0)


def curve_spread(metrics: Sequence[pd.DataFrame], alpha_start: int) -> Figure:
    """Validation perplexity of both nets over the steps that all searches have.

    Args:
        metrics: the rows of each search.
        alpha_start: steps that were done before alpha's first one.
    """
    with house_style():
        figure, axes = one_panel()
        for net, (label, colour) in _NETS.items():
            table = _by_step([validations(frame, net, alpha_start) for frame in metrics])
            if len(table):
                values_NR = table.to_numpy(dtype=float)
                step_N = table.index.to_numpy()
                _band(axes, step_N, values_NR.min(1), values_NR.max(1), colour)
                axes.plot(step_N, values_NR.mean(1), color=colour, marker="o", markersize=4,
                          label=f"{label}, {values_NR.shape[1]} searches")  # fmt: skip
        finish_curves(axes)
    return figure


def _by_step(rows_R: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Perplexities, steps x searches."""
    columns = {
        index: rows.set_index("step")["perplexity"]
        for index, rows in enumerate(rows_R)
        if len(rows)
    }
    return pd.DataFrame(columns).dropna()
