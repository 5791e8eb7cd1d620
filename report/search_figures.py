"""All figures of one search and of several: which there are, written beside what they show.

N recorded steps   L slots   C candidates
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from report.blocks import BLOCKS_FIGURE, blocks_figure, described
from report.cost import COST_FIGURE, cost_figure, has_costs
from report.curves import curve_spread, curves
from report.panels import MOST_POINTS, line_plots, mark_start
from report.pi_grid import heat_map, write_animation
from report.plotting import (
    house_style,
    make_figure,
    margins,
    png,
    step_axis,
)
from report.run_files import Trajectory, read_metrics, read_trajectory, seed_folders, thin
from utils.files import write_whole
from utils.pi import entropy
from utils.pi import margins as pi_margins

SEARCH_FIGURES = (
    "pi_final.png", "pi.gif", "pi_lines.png", "schedule.png", COST_FIGURE,
    BLOCKS_FIGURE, "curves.png",
)  # fmt: skip
SPREAD_FIGURES = {
    "pi_seeds.png": "pi over the steps: mean over the searches, lowest to highest.",
    "curves_seeds.png": "Perplexity of the SuperNets: mean over the searches, lowest to highest.",
}


def write_search_figures(search_folder: Path) -> list[Path]:
    """Write every figure the files of one search seed allow into its `figures/`.

    Raises:
        ValueError: a file of the run is broken.
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
        if has_costs(search_folder):
            figure = cost_figure(search_folder, trajectory)
            written.append(write_whole(folder / COST_FIGURE, png(figure)))
    if (search_folder / "metrics.jsonl").exists():
        metrics = read_metrics(search_folder / "metrics.jsonl")
        if len(metrics):
            if found := described(metrics, search_folder / "metrics.jsonl"):
                written.append(write_whole(folder / BLOCKS_FIGURE, png(blocks_figure(found))))
            written.append(write_whole(folder / "curves.png", png(curves(metrics, alpha_start))))
    return written


def write_spread_figures(run_folder: Path) -> list[Path]:
    """Write the figures of the run's searches into `search/figures/`; none for fewer than two.

    Raises:
        ValueError: a file of the run is broken.
    """
    searches = comparable_searches(run_folder)
    if len(searches) < 2:
        return []
    metrics = [
        read_metrics(folder / "metrics.jsonl")
        for folder in searches
        if (folder / "metrics.jsonl").exists()
    ]
    alpha_start = max(trajectory.alpha_start for trajectory in searches.values())
    figures = line_plots(*searches.values()), curve_spread(metrics, alpha_start)
    folder = run_folder / "search" / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    return [
        write_whole(folder / name, png(figure))
        for name, figure in zip(SPREAD_FIGURES, figures, strict=True)
    ]


def comparable_searches(run_folder: Path) -> dict[Path, Trajectory]:
    """The run's searches that have the slots, candidates and steps of the longest one."""
    searches = {
        folder: read_trajectory(folder / "pi.npz")
        for folder in seed_folders(run_folder / "search")
        if (folder / "pi.npz").exists()
    }
    longest = max(searches.values(), key=lambda search: len(search.step_N), default=None)
    return {
        folder: search
        for folder, search in searches.items()
        if longest is not None
        and search.labels == longest.labels
        and search.pi_NLC.shape == longest.pi_NLC.shape
    }


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


_FIGURES: dict[str, Callable[[Trajectory], Figure]] = {
    "pi_final.png": heat_map,
    "pi_lines.png": line_plots,
    "schedule.png": schedule,
}
