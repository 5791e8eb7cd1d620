"""The figures of a sweep: trials in order, and objectives over settings."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import optuna
from matplotlib.axes import Axes
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

_KINDS = ("history", "importances", "slice", "pareto")
_FEWEST_SLICED = 3  # trials
MOST_PANELS, _PER_ROW = 12, 3


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
