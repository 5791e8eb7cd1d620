"""Figures over the steps: perplexity, tau and entropy, expected cost.

N recorded steps   L slots   C candidates
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from report.pi_figures import MOST_POINTS, mark_start
from report.plotting import FAINT, HUES, colours, dashes, framed, short_label, step_axis
from report.run_files import Trajectory
from utils.files import read_object
from utils.pi import entropy, margins, thin

_NETS = {  # net of a row: label, colour, mark
    "soft": ("validation, mixture of all kinds", HUES["baseline"], "o"),
    "onehot": ("validation, likeliest kind of each block", HUES["chosen"], "s"),
    "drawn": ("validation, random layouts", HUES["chosen"], "s"),
    "model": ("validation", HUES["baseline"], "o"),
}
_MOST_ROWS = 1500


def curves(metrics: pd.DataFrame) -> Figure:
    """Training and validation perplexity per token of one search or one retraining."""
    with framed(7.6, 3.7, top=0.35) as (figure, grid):
        axes = grid[0, 0]
        train = perplexities(metrics, "train")
        if len(train):
            # A search trains other nets than the ones it validates.
            nets = set(metrics["net"].dropna()) if "net" in metrics else set()
            label = "training, the network of each step" if nets - {"model"} else "training"
            marker = "o" if len(train) == 1 else ""
            rows = train.iloc[thin(len(train), _MOST_ROWS)]
            _plot(axes, rows, color=FAINT, linewidth=1.1, marker=marker, label=label)
        for net, (label, colour, marker) in _NETS.items():
            valid = perplexities(metrics, "valid", net)
            if len(valid):
                marker = marker if len(valid) <= 40 else ""
                _plot(axes, valid, color=colour, marker=marker, markersize=4, label=label)
        axes.set_title("Does the perplexity still fall?", loc="left")
        _finish(axes)
    return figure


def validation_curves(
    metrics_by_name: Mapping[str, Sequence[pd.DataFrame]], chosen: str | None = None
) -> Figure:
    """Validation perplexity of several retrained layouts, one line per seed.

    The layout of the name `chosen` has the colour that it has in the other figures.
    """
    with framed(7.6, 3.7, top=0.35) as (figure, grid):
        axes = grid[0, 0]
        hue = colours([name for name in metrics_by_name if name != chosen])
        for index, (name, seeds) in enumerate(metrics_by_name.items()):
            style: dict[str, Any] = {
                "color": hue.get(name, HUES["chosen"]),
                "linestyle": dashes(index),
                "linewidth": 1.6 if len(seeds) == 1 else 1.1,
                "label": short_label(name, 24) + (", chosen" if name == chosen else ""),
            }
            for metrics in seeds:
                valid = perplexities(metrics, "valid")
                if len(valid):
                    marker = "o" if len(valid) <= 40 else ""
                    _plot(axes, valid, marker=marker, markersize=3, **style)
                    style["label"] = None  # one entry of the legend for all seeds
        axes.set_title("Which layout learns best?", loc="left")
        _finish(axes, "validation perplexity")
    return figure


def perplexities(metrics: pd.DataFrame, kind: str, net: str | None = None) -> pd.DataFrame:
    """Rows of one kind (and net) whose perplexity can be drawn, by step."""
    rows = metrics.reindex(columns=["kind", "step", "net", "perplexity"])
    rows = rows[np.isfinite(rows["perplexity"].astype(float))]
    return rows[(rows["kind"] == kind) & ((net is None) | (rows["net"] == net))]


def _plot(axes: Axes, rows: pd.DataFrame, **style: Any) -> None:
    axes.plot(rows["step"], rows["perplexity"], **style)


def _finish(axes: Axes, ylabel: str = "perplexity") -> None:
    """Axes, grid and legend, once all lines are drawn."""
    axes.set_ylabel(f"{ylabel} (lower is better)")
    axes.set_xlabel("step")
    axes.grid(axis="y")
    if not axes.lines:
        axes.text(0.5, 0.5, "nothing recorded yet", ha="center", transform=axes.transAxes)
        return
    first, last = axes.dataLim.intervalx
    room = 0.012 * (last - first)  # for the marks at both ends
    step_axis(axes, first - room, last + room)
    _perplexity_axis(axes, *axes.dataLim.intervaly)
    axes.legend(loc="best")


def _perplexity_axis(axes: Axes, lowest: float, highest: float) -> None:
    """Logarithmic where perplexity falls far, with plain numbers either way."""
    if highest < 3 * lowest:
        axes.yaxis.set_major_locator(MaxNLocator(6))
        return
    axes.set_yscale("log")
    ratio = highest / lowest
    subs = (1, 2, 3, 5, 7) if ratio < 30 else (1, 2, 5) if ratio < 1000 else (1,)
    axes.yaxis.set_major_locator(LogLocator(subs=subs))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_minor_locator(NullLocator())


def schedule(trajectory: Trajectory) -> Figure:
    """tau, and how sure pi is: its entropy and the lead of the likeliest kind, over the steps."""
    rows = thin(len(trajectory.step_N), MOST_POINTS)
    step_N, pi_NLC = trajectory.step_N[rows], trajectory.pi_NLC[rows].astype(np.float64)
    # One candidate has no entropy, and nothing to divide it by.
    share_NL = 100 * entropy(pi_NLC) / np.log(max(pi_NLC.shape[2], 2))
    margin_NL = 100 * margins(pi_NLC)
    marker = "o" if len(step_N) == 1 else ""
    with framed(9.6, 2.7, 1, 3, left=0.65, top=0.38) as (figure, grid):
        figure.subplots_adjust(wspace=0.34)
        tau, sure, lead = grid[0]
        tau.plot(step_N, trajectory.tau_N[rows], color=HUES["baseline"], marker=marker)
        tau.set_title("How random are the draws?", loc="left")
        tau.set_ylabel("temperature (tau)")
        tau.set_ylim(0, 1.08 * max(float(trajectory.tau_N.max()), 1e-9))
        mean = {"color": HUES["baseline"], "marker": marker, "label": "mean of blocks"}
        spread = {"color": HUES["baseline"], "alpha": 0.16, "linewidth": 0, "label": "all blocks"}
        sure.fill_between(step_N, share_NL.min(1), share_NL.max(1), **spread)
        sure.plot(step_N, share_NL.mean(1), **mean)
        sure.set_title("How undecided is the search?", loc="left")
        sure.set_ylabel("undecided, %")
        lead.plot(step_N, margin_NL.mean(1), **mean)
        least = mean | {"color": HUES["chosen"], "ls": "--", "label": "least sure block"}
        lead.plot(step_N, margin_NL.min(1), **least)
        lead.set_title("How clear is each choice?", loc="left")
        lead.set_ylabel("lead, % points")
        for axes in grid[0]:
            if axes is not tau:
                axes.set_ylim(-3, 106)
                axes.legend(loc="best", handlelength=1.6)
            axes.grid(axis="y")
            axes.set_xlabel("step")
            mark_start(axes, trajectory)
            step_axis(axes, float(step_N[0]), float(step_N[-1]), ticks=5)
    return figure


COSTS, COST_PATH = "costs.json", "cost.csv"
_COST_LINES = {
    "expected": ("average of the layouts that pi draws", HUES["baseline"], "-"),
    "argmax": ("likeliest layout", HUES["chosen"], "--"),
}


def cost_figure(search_folder: Path, trajectory: Trajectory) -> Figure:
    """Expected cost of pi as multiples of the reference's, with the target."""
    known = read_object(search_folder / COSTS)
    reference, most = float(known["reference_cost"]), float(known["most"])
    unit = f"{known['name'][:20]}, multiples of {known['reference'][:24]}"
    path = pd.read_csv(search_folder / COST_PATH)[["step", *_COST_LINES]].astype(float)
    step_N = path["step"].to_numpy(float)
    # Until alpha moves every candidate is as likely, and no layout is named.
    named_N = step_N > trajectory.alpha_start
    shown = path[[*_COST_LINES]].where(named_N[:, None] | (path.columns[1:] == "expected"))
    shown = shown / reference
    with framed(7.6, 3.3, right=0.25) as (figure, grid):
        axes = grid[0, 0]
        for name, (label, colour, style) in _COST_LINES.items():
            axes.plot(step_N, shown[name], style, color=colour, label=label)
        axes.axhline(most / reference, color=HUES["front"], linewidth=1.4, ls=":", label="target")
        axes.set_ylim(0, 1.1 * float(shown.max().max()))
        axes.set_xlabel("step")
        axes.set_ylabel(unit)
        axes.grid(axis="y")
        mark_start(axes, trajectory)
        step_axis(axes, float(step_N[0]), float(step_N[-1]))
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4, borderaxespad=0.2)
    return figure
