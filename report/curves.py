"""Perplexity over the steps: of one search, of several searches, and of retrainings."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from report.plotting import (
    BAND_OPACITY,
    SEARCHED,
    dashes,
    house_style,
    make_figure,
    margins,
    short_label,
    step_axis,
)
from report.run_files import thin

_MOST_POINTS = 1500
NETS = {  # net of a row: label, colour, mark
    "soft": ("validation, soft mixture", "#0072b2", "o"),
    "onehot": ("validation, one-hot", "#d55e00", "s"),
    "drawn": ("validation, layouts drawn uniformly", "#d55e00", "s"),
    "model": ("validation", "#0072b2", "o"),
}
_NAMED = ("#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#332288", "#000000")


def curves(metrics: pd.DataFrame, alpha_start: int = 0) -> Figure:
    """Training and validation perplexity per token of one search or one retraining.

    `alpha_start`: steps of a search that were done before alpha's first one.
    """
    with house_style():
        figure, axes = _one_panel()
        train = perplexities(metrics, "train")
        if len(train):
            # A search trains other nets than the ones it validates.
            nets = set(metrics["net"].dropna()) if "net" in metrics else set()
            label = "training, each step's own draw" if nets - {"model"} else "training"
            marker = "o" if len(train) == 1 else ""
            rows = train.iloc[thin(len(train), _MOST_POINTS)]
            _plot(axes, rows, color="#9a9a9a", linewidth=1.1, marker=marker, label=label)
        for net, (label, colour, marker) in NETS.items():
            valid = _validations(metrics, net, alpha_start)
            if len(valid):
                marker = marker if len(valid) <= 40 else ""
                _plot(axes, valid, color=colour, marker=marker, markersize=4, label=label)
        _finish(axes)
    return figure


def curve_spread(metrics: Sequence[pd.DataFrame], alpha_start: int) -> Figure:
    """Validation perplexity of both nets of several searches, over the steps that all have.

    The mean is a line, all searches are a band.
    """
    with house_style():
        figure, axes = _one_panel()
        for net in ("soft", "onehot"):
            label, colour, _ = NETS[net]
            validations = [_validations(frame, net, alpha_start) for frame in metrics]
            columns = {
                index: rows.set_index("step")["perplexity"]
                for index, rows in enumerate(validations)
                if len(rows)
            }
            table = pd.DataFrame(columns).dropna()
            if len(table):
                values_NR = table.to_numpy(dtype=float)
                step_N, low_N, high_N = table.index.to_numpy(), values_NR.min(1), values_NR.max(1)
                axes.fill_between(
                    step_N, low_N, high_N, color=colour, alpha=BAND_OPACITY, linewidth=0
                )
                axes.plot(step_N, values_NR.mean(1), color=colour, marker="o", markersize=4,
                          label=f"{label}, {values_NR.shape[1]} searches")  # fmt: skip
        _finish(axes)
    return figure


def validation_curves(
    metrics_by_name: Mapping[str, Sequence[pd.DataFrame]], chosen: str | None = None
) -> Figure:
    """Validation perplexity of several retrained layouts, one line per seed.

    The layout of the name `chosen` has the colour that it has in the other figures.
    """
    with house_style():
        figure, axes = _one_panel()
        others = [name for name in metrics_by_name if name != chosen]
        for index, (name, seeds) in enumerate(metrics_by_name.items()):
            place = 0 if name == chosen else others.index(name)
            style: dict[str, Any] = {
                "color": SEARCHED if name == chosen else _NAMED[place % len(_NAMED)],
                "linestyle": dashes(index),
                "linewidth": 1.6 if len(seeds) == 1 else 1.1,
                "label": short_label(name, 24),
            }
            for metrics in seeds:
                valid = perplexities(metrics, "valid")
                if len(valid):
                    marker = "o" if len(valid) <= 40 else ""
                    _plot(axes, valid, marker=marker, markersize=3, **style)
                    style["label"] = None  # one entry of the legend for all seeds
        _finish(axes, "validation perplexity per token")
    return figure


def perplexities(metrics: pd.DataFrame, kind: str, net: str | None = None) -> pd.DataFrame:
    """Rows of one kind (and net) whose perplexity can be drawn, by step."""
    rows = metrics.reindex(columns=["kind", "step", "net", "perplexity"])
    rows = rows[np.isfinite(rows["perplexity"].astype(float))]
    return rows[(rows["kind"] == kind) & ((net is None) | (rows["net"] == net))]


def _validations(metrics: pd.DataFrame, net: str, alpha_start: int) -> pd.DataFrame:
    rows = perplexities(metrics, "valid", net)
    # Before alpha's first step pi is uniform, and one-hot is whichever candidate stands first.
    return rows[rows["step"] > alpha_start] if net == "onehot" else rows


def _one_panel() -> tuple[Figure, Axes]:
    figure = make_figure(7.6, 3.6)
    axes = figure.subplots()
    margins(figure, left=0.75, right=0.2, top=0.2, bottom=0.5)
    return figure, axes


def _plot(axes: Axes, rows: pd.DataFrame, **style: Any) -> None:
    axes.plot(rows["step"], rows["perplexity"], **style)


def _finish(axes: Axes, ylabel: str = "perplexity per token") -> None:
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
