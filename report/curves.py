"""Figures over the steps: perplexity, tau and entropy, expected cost, what blocks say.

N recorded steps or validations   L slots   C candidates   R searches   K numbers of a block
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from report.pi_figures import MOST_POINTS, mark_start
from report.plotting import (
    BAND_OPACITY,
    INK,
    SEARCHED,
    dashes,
    framed,
    panel_columns,
    short_label,
    step_axis,
)
from report.run_files import Trajectory, read_json, reading, thin
from utils.pi import entropy, margins

_NETS = {  # net of a row: label, colour, mark
    "soft": ("validation, soft mixture", "#0072b2", "o"),
    "onehot": ("validation, one-hot", "#d55e00", "s"),
    "drawn": ("validation, layouts drawn uniformly", "#d55e00", "s"),
    "model": ("validation", "#0072b2", "o"),
}
_MOST_ROWS = 1500
_NAMED = ("#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#332288", "#000000")


def curves(metrics: pd.DataFrame, alpha_start: int = 0) -> Figure:
    """Training and validation perplexity per token of one search or one retraining.

    `alpha_start`: steps of a search that were done before alpha's first one.
    """
    with framed(7.6, 3.6, top=0.2, bottom=0.5) as (figure, grid):
        axes = grid[0, 0]
        train = perplexities(metrics, "train")
        if len(train):
            # A search trains other nets than the ones it validates.
            nets = set(metrics["net"].dropna()) if "net" in metrics else set()
            label = "training, each step's own draw" if nets - {"model"} else "training"
            marker = "o" if len(train) == 1 else ""
            rows = train.iloc[thin(len(train), _MOST_ROWS)]
            _plot(axes, rows, color="#9a9a9a", linewidth=1.1, marker=marker, label=label)
        for net, (label, colour, marker) in _NETS.items():
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
    with framed(7.6, 3.6, top=0.2, bottom=0.5) as (figure, grid):
        axes = grid[0, 0]
        for net in ("soft", "onehot"):
            label, colour, _ = _NETS[net]
            validations = [_validations(frame, net, alpha_start) for frame in metrics]
            known = [rows.set_index("step")["perplexity"] for rows in validations if len(rows)]
            table = pd.concat(known, axis=1, join="inner") if known else pd.DataFrame()
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
    with framed(7.6, 3.6, top=0.2, bottom=0.5) as (figure, grid):
        axes = grid[0, 0]
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


def schedule(trajectory: Trajectory) -> Figure:
    """tau, and how sure pi is: entropy and the lead of the likeliest candidate, over the steps."""
    rows = thin(len(trajectory.step_N), MOST_POINTS)
    step_N, pi_NLC = trajectory.step_N[rows], trajectory.pi_NLC[rows].astype(np.float64)
    # One candidate has no entropy, and nothing to divide it by.
    share_NL = entropy(pi_NLC) / np.log(max(pi_NLC.shape[2], 2))
    margin_NL = margins(pi_NLC)
    marker = "o" if len(step_N) == 1 else ""
    with framed(9.6, 2.55, 1, 3, left=0.5, top=0.38, bottom=0.5) as (figure, grid):
        figure.subplots_adjust(wspace=0.22)
        tau, sure, lead = grid[0]
        tau.plot(step_N, trajectory.tau_N[rows], color="#332288", marker=marker)
        tau.set_title("tau", loc="left")
        tau.set_ylim(0, 1.08 * max(float(trajectory.tau_N.max()), 1e-9))
        spread = {"color": "#0072b2", "alpha": 0.16, "linewidth": 0, "label": "all slots"}
        sure.fill_between(step_N, share_NL.min(1), share_NL.max(1), **spread)
        sure.plot(step_N, share_NL.mean(1), color="#0072b2", marker=marker, label="mean")
        sure.set_title("entropy of pi / entropy of uniform", loc="left")
        lead.plot(step_N, margin_NL.mean(1), color="#009e73", marker=marker, label="mean")
        smallest: dict[str, Any] = {"color": "#d55e00", "ls": "--", "label": "smallest"}
        lead.plot(step_N, margin_NL.min(1), marker=marker, **smallest)
        lead.set_title("pi of the first - pi of the second", loc="left")
        for axes in grid[0]:
            if axes is not tau:
                axes.set_ylim(-0.03, 1.06)
                axes.legend(loc="best", handlelength=1.6)
            axes.grid(axis="y")
            axes.set_xlabel("step")
            mark_start(axes, trajectory)
            step_axis(axes, float(step_N[0]), float(step_N[-1]), ticks=5)
    return figure


COSTS, COST_PATH = "costs.json", "cost.csv"
_COST_LINES = {
    "expected": ("expected of pi", "#0072b2", "-"),
    "argmax": ("each slot's likeliest", "#d55e00", "--"),
    "within": ("likeliest layout within the target", "#009e73", "-."),
}


def cost_figure(search_folder: Path, trajectory: Trajectory) -> Figure:
    """Expected cost of pi as multiples of the reference's, with the target.

    Raises:
        ValueError: a file of the search is broken.
    """
    known = read_json(search_folder / COSTS)
    with reading(search_folder / COSTS):
        reference, most = float(known["reference_cost"]), float(known["most"])
        unit = f"{known['name'][:20]} / {known['reference'][:24]}"
    with reading(search_folder / COST_PATH):
        path = pd.read_csv(search_folder / COST_PATH)[["step", *_COST_LINES]].astype(float)
    step_N = path["step"].to_numpy(float)
    # Until alpha moves every candidate is as likely, and no layout is named.
    named_N = step_N > trajectory.alpha_start
    shown = path[[*_COST_LINES]].where(named_N[:, None] | (path.columns[1:] == "expected"))
    shown = shown / reference
    with framed(7.6, 3.2, right=0.25, bottom=0.5) as (figure, grid):
        axes = grid[0, 0]
        for name, (label, colour, style) in _COST_LINES.items():
            axes.plot(step_N, shown[name], style, color=colour, label=label)
        axes.axhline(most / reference, color="#666666", linewidth=1.0, ls=":", label="target")
        axes.set_ylim(0, 1.1 * float(shown.max().max()))
        axes.set_xlabel("step")
        axes.set_ylabel(unit)
        axes.grid(axis="y")
        mark_start(axes, trajectory)
        step_axis(axes, float(step_N[0]), float(step_N[-1]))
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4, borderaxespad=0.2)
    return figure


BLOCKS_WORDS = (
    "span_keys: keys that a head sees in full; largest_cluster: share of tokens in a head's "
    "fullest cluster, at 1 routing chooses nothing; load: share of choices for each expert"
)


@dataclass(frozen=True)
class Series:
    """Numbers of one name of one slot's candidate, at each validation that has them."""

    step_N: np.ndarray
    value_NK: np.ndarray


# By label and name, then by slot.
Described = dict[tuple[str, str], dict[int, Series]]


def described(metrics: pd.DataFrame, path: Path) -> Described:
    """Collect what the rows of a `metrics.jsonl` say of blocks; mostly nothing.

    Raises:
        ValueError: a row is broken; the message names the path.
    """
    found: dict[tuple[str, str], dict[int, dict[int, list[float]]]] = {}
    if "blocks" not in metrics:
        return {}
    rows = metrics[metrics["kind"] == "blocks"]
    with reading(path):
        for step, blocks in zip(rows["step"], rows["blocks"], strict=True):
            for block in blocks:
                for name, values in block["numbers"].items():
                    slots = found.setdefault((block["label"], name), {})
                    slots.setdefault(block["slot"], {})[int(step)] = values
        return {
            key: {
                slot: Series(np.array(list(by_step)), np.array(list(by_step.values())))
                for slot, by_step in sorted(slots.items())
            }
            for key, slots in found.items()
        }


def blocks_figure(found: Described) -> Figure:
    """A panel for each slot: its numbers as thin lines, their mean as a thick one.

    The panels of one label and name begin on a line of their own, on one scale.
    """
    columns = max(panel_columns(len(slots)) for slots in found.values())
    lines = [
        (key, list(slots.items())[first : first + columns])
        for key, slots in found.items()
        for first in range(0, len(slots), columns)
    ]
    steps = np.concatenate([one.step_N for slots in found.values() for one in slots.values()])
    width, height = 0.85 + min(5.4, 9.6 / columns) * columns, 1.67 * len(lines) + 0.35
    with framed(
        width, height, len(lines), columns, left=0.7, right=0.15, top=0.3, bottom=0.45, sharex=True
    ) as (figure, grid):
        figure.subplots_adjust(wspace=0.2, hspace=0.4)
        for (key, shown), line in zip(lines, grid, strict=True):
            most = max(float(one.value_NK.max()) for one in found[key].values())
            line[0].set_ylabel("\n".join(short_label(word, 20) for word in key))
            for (slot, one), axes in zip(shown, line, strict=False):
                _draw_numbers(axes, slot, one)
                axes.set_ylim(0, 1.06 * most if most > 0 else 1)
                step_axis(axes, int(steps.min()), int(steps.max()), ticks=4)
            for axes in line[len(shown) :]:
                axes.remove()
        for axes in grid[-1][: len(lines[-1][1])]:
            axes.set_xlabel("step", labelpad=1)
    return figure


def _draw_numbers(axes: Axes, slot: int, one: Series) -> None:
    low, high = float(one.value_NK[-1].min()), float(one.value_NK[-1].max())
    ends = f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"
    axes.set_title(f"slot {slot}: {ends}", loc="left", fontsize=8.0, pad=3)
    marker = "o" if len(one.step_N) == 1 else ""
    # A single point stands on the edge of its axes.
    shape: dict[str, Any] = {"marker": marker, "markersize": 3, "clip_on": not marker}
    axes.plot(one.step_N, one.value_NK, color="#0072b2", alpha=0.6, linewidth=0.9, **shape)
    axes.plot(one.step_N, one.value_NK.mean(axis=1), color=INK, linewidth=1.8, **shape)
    axes.grid(axis="y")
