"""The figures of a sweep: trials in order, objectives over settings and over pairs of settings."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import optuna
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from report.plotting import FAINT, house_style, make_figure, margins, png, room
from report.sweep.axes import (
    BASELINE,
    BEST,
    FAILED,
    POINT,
    Setting,
    highest_shown,
    mark_special,
    scaled,
    setting,
    setting_axis,
    shared_legend,
    value_axis,
    value_label,
)
from report.sweep.importance import bars, importances
from report.sweep.pareto import pareto
from report.sweep.trials import (
    Objective,
    Row,
    baseline_of,
    done,
    keys_of,
    parse_objectives,
    parse_rows,
    short_keys,
)
from utils.files import write_whole

_KINDS = ("history", "importances", "slice", "contour", "pareto")
_FEWEST_SLICED, _FEWEST_PAIRED = 3, 10  # trials
MOST_PANELS, _PER_ROW = 12, 3
_PAIRED = 3  # settings of which each pair has a contour
_CELLS, _NEAR, _FARTHEST = 60, 0.09, 0.16  # the last two are shares of an axis
_MAP = "viridis"


def draw_sweep(
    study: optuna.Study,
    trials: Sequence[Mapping[str, Any]],
    folder: Path,
    objectives: Sequence[Mapping[str, Any]],
) -> list[Path]:
    """Draw what there is to see of a sweep and return the files; with no trial at all none.

    Figures of an earlier call that no longer hold are removed from `folder`.

    Args:
        study: says which values each setting may take.
        trials: the logical trials, as `sweep.json` has them.
        folder: gets the PNG files.
        objectives: names and units, as `sweep.json` has them; all are minimised.
    """
    rows, goals = parse_rows(trials), parse_objectives(objectives)
    figures = _figures(study, rows, goals) if rows else {}
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.png"):
        if path.name.removesuffix(".png").split("-")[0] in _KINDS and path.name not in figures:
            path.unlink()
    return [write_whole(folder / name, png(figure)) for name, figure in figures.items()]


def _figures(
    study: optuna.Study, rows: Sequence[Row], goals: Sequence[Objective]
) -> dict[str, Figure]:
    figures = {"history.png": history(rows, goals)}
    if not done(rows):
        return figures
    if len(goals) > 1:
        figures["pareto.png"] = pareto(rows, goals)
    of_goals = [(goal, importances(rows, index)) for index, goal in enumerate(goals)]
    short = short_keys(keys_of(rows), least=2)
    if any(ones for _, ones in of_goals):
        figures["importances.png"] = bars(of_goals, short)
    settings = _settings(study, rows, short)
    for index, (goal, ones) in enumerate(of_goals):
        end = f"-{index + 1}.png" if len(goals) > 1 else ".png"
        by_importance = dict.fromkeys([*(one.key for one in ones), *settings])
        ordered = [settings[key] for key in by_importance]
        if len(done(rows)) >= _FEWEST_SLICED:
            figures[f"slice{end}"] = slices(rows, ordered, index, goal)
        telling = {one.key for one in ones if one.share is not None}
        pairs = contours(rows, [one for one in ordered if one.key in telling], index, goal)
        if pairs is not None:
            figures[f"contour{end}"] = pairs
    return figures


def _settings(
    study: optuna.Study, rows: Sequence[Row], short: Mapping[str, str]
) -> dict[str, Setting]:
    """The axes of all settings that a finished trial has."""
    finished = done(rows)
    known = {
        key: distribution
        for trial in study.get_trials(deepcopy=False)
        for key, distribution in trial.distributions.items()
    }
    return {key: setting(key, short[key], finished, known) for key in keys_of(finished)}


def history(rows: Sequence[Row], objectives: Sequence[Objective]) -> Figure:
    """One panel per objective; trials without a value stand below the axis' lowest value."""
    with house_style():
        figure = make_figure(7.6, 0.9 + 2.7 * len(objectives))
        panels = figure.subplots(len(objectives), 1, sharex=True, squeeze=False)[:, 0]
        margins(figure, left=0.85, right=0.2, top=0.5, bottom=0.5)
        for index, (axes, goal) in enumerate(zip(panels, objectives, strict=True)):
            _history_panel(axes, rows, index, goal)
        panels[-1].set_xlabel("trial")
        panels[-1].xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
        shared_legend(figure)
    return figure


def _history_panel(axes: Axes, rows: Sequence[Row], index: int, goal: Objective) -> None:
    finished = sorted(done(rows), key=lambda row: row.number)
    number = np.array([row.number for row in finished])
    value = scaled(finished, index, goal)
    axes.set_ylabel(value_label(goal))
    axes.grid(axis="y")
    _without_value(axes, rows)
    if not len(value):
        axes.text(0.5, 0.5, "no trial has finished", ha="center", transform=axes.transAxes)
        axes.set_yticks([])
        return
    top = highest_shown(value)
    low = float(value.min())
    beyond = room(low, top, 0.08)
    inside = value <= top
    axes.plot(
        number[inside], value[inside], "o", color=POINT, markersize=4, alpha=0.75, label="finished"
    )
    if not inside.all():
        axes.plot(
            number[~inside], np.full((~inside).sum(), top + beyond), "^", color=POINT, markersize=6,
            clip_on=False, label="above the axis",
        )  # fmt: skip
    axes.step(number, np.minimum.accumulate(value), where="post", color=BEST, label="best so far")
    baseline = baseline_of(rows)
    if baseline is not None and baseline.values is not None:
        level = goal.scaled(baseline.values[index])
        axes.axhline(level, color=BASELINE, linestyle="--", linewidth=1.0)
        axes.plot([baseline.number], [level], "*", color=BASELINE, markersize=11, label="baseline")
    axes.set_ylim(low - 2.2 * beyond, top + beyond)
    value_axis(axes.yaxis, goal)


def _without_value(axes: Axes, rows: Sequence[Row]) -> None:
    marks = {
        "failed": ("x", FAILED, 0.09),
        "pruned": ("v", FAINT, 0.035),
        "stopped": ("|", FAINT, 0.035),
    }
    for state, (mark, colour, height) in marks.items():
        at = [row.number for row in rows if row.state == state]
        if at:
            axes.plot(
                at, [height] * len(at), mark, color=colour, markersize=6, label=state,
                transform=axes.get_xaxis_transform(),
            )  # fmt: skip


def slices(rows: Sequence[Row], settings: Sequence[Setting], index: int, goal: Objective) -> Figure:
    """One small panel per setting, at most 12; darker marks are later trials."""
    finished = sorted(done(rows), key=lambda row: row.number)
    shown = settings[:MOST_PANELS]
    lines = -(-len(shown) // _PER_ROW)
    columns = -(-len(shown) // lines)
    with house_style():
        figure = make_figure(7.6 if columns > 1 else 4.4, 2.45 * lines + 0.35)
        grid = figure.subplots(lines, columns, squeeze=False, sharey=True)
        margins(figure, left=0.8, right=0.2, top=0.35, bottom=0.85)
        figure.subplots_adjust(wspace=0.12, hspace=0.75)
        panels = list(grid.flat)
        for axes, one in zip(panels, shown, strict=False):
            _slice_panel(axes, finished, one, index, goal)
        for axes in panels[len(shown) :]:
            axes.set_visible(False)
        for line in grid[:, 0]:
            line.set_ylabel(value_label(goal))
        shared_legend(figure)
    return figure


def _slice_panel(
    axes: Axes, finished: Sequence[Row], one: Setting, index: int, goal: Objective
) -> None:
    active = [row for row in finished if one.key in row.params]
    value_N = scaled(active, index, goal)
    every_N = scaled(finished, index, goal)
    top, low = highest_shown(every_N), float(every_N.min())
    beyond = room(low, top, 0.07)
    place_N = one.spread(active, "x")
    age_N = np.array([row.number for row in active]) / max(finished[-1].number, 1)
    colour_N4 = matplotlib.colormaps["Blues"](0.3 + 0.65 * age_N)
    shown_N = value_N <= top
    axes.scatter(
        place_N[shown_N], value_N[shown_N], s=20, c=colour_N4[shown_N], edgecolors="#5a5a5a",
        linewidths=0.4,
    )  # fmt: skip
    if not shown_N.all():
        axes.scatter(
            place_N[~shown_N], np.full((~shown_N).sum(), top + beyond), s=22, marker="^",
            color=colour_N4[~shown_N], clip_on=False, label="above the axis",
        )  # fmt: skip
    best = finished[int(every_N.argmin())]
    mark_special(axes, active, place_N, np.minimum(value_N, top + beyond), best)
    setting_axis(axes, "x", one, active)
    axes.set_ylim(low - beyond, top + beyond)
    value_axis(axes.yaxis, goal)
    axes.grid(axis="y")
    if len(active) < len(finished):
        axes.set_title(f"{len(active)} trials only", fontsize=8, loc="left", pad=3)


def contours(
    rows: Sequence[Row], settings: Sequence[Setting], index: int, goal: Objective
) -> Figure | None:
    """The pairs of the three first settings; None where no pair has 10 trials.

    The ground is the mean of the trials nearby (a Gaussian kernel), white where none is near: it
    guides the eye and promises nothing between the trials.
    """
    finished = sorted(done(rows), key=lambda row: row.number)
    pairs = []
    for one, other in combinations(settings[:_PAIRED], 2):
        active = [row for row in finished if {one.key, other.key} <= row.params.keys()]
        if len(active) >= _FEWEST_PAIRED:
            pairs.append((one, other, active))
    if not pairs:
        return None
    value_N = scaled(finished, index, goal)
    norm = Normalize(float(value_N.min()), highest_shown(value_N), clip=True)
    best = finished[int(value_N.argmin())]
    with house_style():
        width = 1.65 + 3.05 * len(pairs)
        figure = make_figure(width, 3.7)
        panels = figure.subplots(1, len(pairs), squeeze=False)[0]
        margins(figure, left=1.1, right=1.15, top=0.45, bottom=0.95)
        figure.subplots_adjust(wspace=0.48)
        for axes, (one, other, active) in zip(panels, pairs, strict=True):
            _contour_panel(axes, one, other, active, scaled(active, index, goal), norm, best)
        bar_axes = figure.add_axes((1 - 0.95 / width, 0.95 / 3.7, 0.13 / width, 2.3 / 3.7))
        bar = figure.colorbar(
            matplotlib.cm.ScalarMappable(norm, _MAP), cax=bar_axes, label=value_label(goal)
        )
        bar.outline.set_visible(False)
        shared_legend(figure)
    return figure


def _contour_panel(
    axes: Axes,
    one: Setting,
    other: Setting,
    active: Sequence[Row],
    value_N: np.ndarray,
    norm: Normalize,
    best: Row,
) -> None:
    setting_axis(axes, "x", one, active)
    setting_axis(axes, "y", other, active)
    x_edges, y_edges = _edges(one, active), _edges(other, active)
    ground_YX = surface(
        (one.unit(one.places(active), active), other.unit(other.places(active), active)),
        np.minimum(value_N, norm.vmax or 0.0),
        (_middles(one.unit(x_edges, active)), _middles(other.unit(y_edges, active))),
        (
            _NEAR / len(one.levels) if one.levels else _NEAR,
            _NEAR / len(other.levels) if other.levels else _NEAR,
        ),
    )
    axes.pcolormesh(x_edges, y_edges, ground_YX, cmap=_MAP, norm=norm, alpha=0.55, linewidth=0)
    x_N, y_N = one.spread(active, "x"), other.spread(active, "y")
    axes.scatter(
        x_N, y_N, s=22, c=value_N, cmap=_MAP, norm=norm, edgecolors="white", linewidths=0.7
    )
    mark_special(axes, active, x_N, y_N, best)


def _edges(one: Setting, active: Sequence[Row]) -> np.ndarray:
    low, high = one.limits(active)
    if one.levels:
        return np.arange(len(one.levels) + 1) - 0.5
    return np.geomspace(low, high, _CELLS + 1) if one.log else np.linspace(low, high, _CELLS + 1)


def _middles(edges: np.ndarray) -> np.ndarray:
    return (edges[1:] + edges[:-1]) / 2


def surface(
    place_2N: tuple[np.ndarray, np.ndarray],
    value_N: np.ndarray,
    cell_2: tuple[np.ndarray, np.ndarray],
    near: tuple[float, float],
) -> np.ndarray:
    """Kernel-weighted mean of the values at every cell, NaN farther than `_FARTHEST` from all.

    Args:
        place_2N: the trials' x and y, 0 to 1.
        value_N: their values.
        cell_2: middles of the cells along x and y.
        near: width of the kernel along x and y.
    """
    x_XN = (cell_2[0][:, None] - place_2N[0][None]) / near[0]
    y_YN = (cell_2[1][:, None] - place_2N[1][None]) / near[1]
    square_YXN = y_YN[:, None] ** 2 + x_XN[None] ** 2
    weight_YXN = np.exp(-square_YXN / 2)
    mean_YX = weight_YXN @ value_N / np.maximum(weight_YXN.sum(axis=2), 1e-300)
    far_YX = square_YXN.min(axis=2) > (_FARTHEST / _NEAR) ** 2
    return np.where(far_YX, np.nan, mean_YX)
