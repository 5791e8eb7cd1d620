"""Perplexity over the steps: training, and validation of every net."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from report.plotting import dashes, house_style, make_figure, margins, plain, step_axis
from report.run_files import thin
from utils.text import shorten

_MOST_POINTS = 1500
_NETS = {
    "soft": ("validation, soft mixture", "#0072b2", "o"),
    "onehot": ("validation, one-hot", "#d55e00", "s"),
    "drawn": ("validation, layouts drawn uniformly", "#d55e00", "s"),
    "model": ("validation", "#0072b2", "o"),
}
_SEARCHED = "#d55e00"
_NAMED = ("#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#332288", "#000000")


def curves(metrics: pd.DataFrame, alpha_start: int = 0) -> Figure:
    """Training and validation perplexity of one search or one retraining, per token.

    Args:
        metrics: its rows.
        alpha_start: of a search: steps that were done before alpha's first one.
    """
    with house_style():
        figure, axes = one_panel()
        train = perplexities(metrics, "train")
        if len(train):
            rows = thin(len(train), _MOST_POINTS)
            marker = "o" if len(train) == 1 else ""
            axes.plot(
                train["step"].iloc[rows],
                train["perplexity"].iloc[rows],
                color="#9a9a9a",
                linewidth=1.1,
                marker=marker,
                label=_training(metrics),
            )
        for net, (label, colour, marker) in _NETS.items():
            valid = validations(metrics, net, alpha_start)
            if len(valid):
                axes.plot(
                    valid["step"],
                    valid["perplexity"],
                    color=colour,
                    marker=marker if len(valid) <= 40 else "",
                    markersize=4,
                    label=label,
                )
        finish_curves(axes)
    return figure


def _training(metrics: pd.DataFrame) -> str:
    """What the training line is of: a search trains other nets than the ones it validates."""
    nets = set(metrics["net"].dropna()) if "net" in metrics else set()
    return "training, each step's own draw" if nets - {"model"} else "training"


def validation_curves(
    metrics_by_name: Mapping[str, Sequence[pd.DataFrame]], searched: str | None = None
) -> Figure:
    """Validation perplexity of several retrained layouts, one line per seed.

    Args:
        metrics_by_name: the rows of each seed of each layout.
        searched: the layout that has the colour of the searched one in the other figures.
    """
    with house_style():
        figure, axes = one_panel()
        others = [name for name in metrics_by_name if name != searched]
        for index, (name, seeds) in enumerate(metrics_by_name.items()):
            place = 0 if name == searched else others.index(name)
            colour = _SEARCHED if name == searched else _NAMED[place % len(_NAMED)]
            label: str | None = shorten(plain(name), 24)
            for metrics in seeds:
                valid = perplexities(metrics, "valid")
                if len(valid) == 0:
                    continue
                axes.plot(
                    valid["step"],
                    valid["perplexity"],
                    color=colour,
                    linestyle=dashes(index),
                    linewidth=1.6 if len(seeds) == 1 else 1.1,
                    marker="o" if len(valid) <= 40 else "",
                    markersize=3,
                    label=label,
                )
                label = None
        finish_curves(axes, "validation perplexity per token")
    return figure


def perplexities(metrics: pd.DataFrame, kind: str, net: str | None = None) -> pd.DataFrame:
    """Rows of one kind (and net) whose perplexity can be drawn, by step."""
    if "perplexity" not in metrics:
        return metrics.iloc[:0]
    chosen = metrics["kind"] == kind
    if net is not None:
        chosen &= metrics["net"] == net if "net" in metrics else False
    rows = metrics[chosen].assign(
        perplexity=lambda frame: pd.to_numeric(frame["perplexity"], errors="coerce")
    )
    drawn = np.isfinite(rows["perplexity"].to_numpy(dtype=float))
    return rows[drawn & (rows["perplexity"] > 0).to_numpy()]


def validations(metrics: pd.DataFrame, net: str, alpha_start: int) -> pd.DataFrame:
    """Rows of a net's validation that can be drawn; of the one-hot net from alpha's first step on.

    Before it pi is uniform, and one-hot is whichever candidate stands first.
    """
    rows = perplexities(metrics, "valid", net)
    return rows[rows["step"] > alpha_start] if net == "onehot" else rows


def one_panel() -> tuple[Figure, Axes]:
    """A figure of curves, still empty."""
    figure = make_figure(7.6, 3.6)
    axes = figure.subplots()
    margins(figure, left=0.75, right=0.2, top=0.2, bottom=0.5)
    return figure, axes


def finish_curves(axes: Axes, ylabel: str = "perplexity per token") -> None:
    """Axes, grid and legend, once all lines are drawn."""
    axes.set_ylabel(ylabel)
    axes.set_xlabel("step")
    axes.grid(axis="y")
    drawn = [line for line in axes.get_lines() if len(line.get_xdata())]  # type: ignore[arg-type]
    if not drawn:
        axes.text(0.5, 0.5, "nothing recorded yet", ha="center", transform=axes.transAxes)
        return
    step_values = np.concatenate([np.asarray(line.get_xdata(), dtype=float) for line in drawn])
    values = np.concatenate([np.asarray(line.get_ydata(), dtype=float) for line in drawn])
    first, last = float(step_values.min()), float(step_values.max())
    room = 0.012 * (last - first)  # for the marks at both ends
    step_axis(axes, first - room, last + room)
    _perplexity_axis(axes, float(values.min()), float(values.max()))
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
