"""The figures of a sweep: trials in order, importances, slices of settings, the Pareto front."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from report.plotting import (
    FAINT,
    INK,
    SEARCHED,
    framed,
    name_points,
    plain,
    png,
    room,
    shared_legend,
    short_label,
    stairs,
)
from report.run_files import thin
from report.sweep.importance import FEWEST_TRIALS, Importance, importances
from report.sweep.trials import (
    Objective,
    Row,
    baseline_of,
    distinct_trials,
    done,
    front,
    keys_of,
    short_keys,
    value_text,
)
from utils.files import write_whole
from utils.text import shorten

POINT, BEST, BASELINE, FAILED = "#0072b2", "#009e73", SEARCHED, "#882255"
_FEWEST_SLICED, _MOST_SLICES, _SLICES_A_LINE = 3, 12, 3
_MOST_BARS, _MOST_LEVELS, _MOST_FRONTS, _MOST_NAMES = 16, 8, 3, 12
Distributions = Mapping[str, BaseDistribution]


def draw_sweep(
    rows: Sequence[Row], goals: Sequence[Objective], known: Distributions, folder: Path
) -> list[Path]:
    """Draw what there is to see of a sweep into `folder`; with no trial at all nothing.

    Figures of an earlier call that no longer hold are removed. `known` says which values each
    setting may take.
    """
    figures = _figures(rows, goals, known) if rows else {}
    folder.mkdir(parents=True, exist_ok=True)
    for kind in ("history", "importances", "slice", "pareto"):
        for path in folder.glob(f"{kind}*.png"):
            if path.name not in figures:
                path.unlink()
    return [write_whole(folder / name, png(figure)) for name, figure in figures.items()]


def _figures(
    rows: Sequence[Row], goals: Sequence[Objective], known: Distributions
) -> dict[str, Figure]:
    figures = {"history.png": history(rows, goals)}
    finished = done(rows)
    if len(goals) > 1 and finished:
        figures["pareto.png"] = pareto(rows, goals)
    of_goals = [importances(rows, index) for index in range(len(goals))]
    if any(of_goals):
        figures["importances.png"] = bars(goals, of_goals)
    for index, (goal, ones) in enumerate(zip(goals, of_goals, strict=True)):
        name = f"slice-{index + 1}.png" if len(goals) > 1 else "slice.png"
        if len(finished) >= _FEWEST_SLICED:
            keys = dict.fromkeys([*(one.key for one in ones), *keys_of(finished)])
            figures[name] = slices(rows, list(keys), known, index, goal)
    return figures


def history(rows: Sequence[Row], goals: Sequence[Objective]) -> Figure:
    """One panel per objective; trials without a value stand below the axis' lowest value."""
    height, lines = 0.9 + 2.7 * len(goals), len(goals)
    with framed(7.6, height, lines, left=0.85, top=0.5, bottom=0.5, sharex=True) as (figure, grid):
        for index, (axes, goal) in enumerate(zip(grid[:, 0], goals, strict=True)):
            _history_panel(axes, rows, index, goal)
        axes.set_xlabel("trial")
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
        shared_legend(figure)
    return figure


def _history_panel(axes: Axes, rows: Sequence[Row], index: int, goal: Objective) -> None:
    axes.set_ylabel(_label(goal))
    axes.grid(axis="y")
    marks = {"failed": ("x", FAILED), "pruned": ("v", FAINT), "stopped": ("|", FAINT)}
    for state, (mark, colour) in marks.items():
        at, height = [row.number for row in rows if row.state == state], 0.06
        if at:
            axes.plot(
                at, [height] * len(at), mark, color=colour, markersize=6, label=state,
                transform=axes.get_xaxis_transform(),
            )  # fmt: skip
    finished = sorted(done(rows), key=lambda row: row.number)
    if not finished:
        axes.text(0.5, 0.5, "no trial has finished", ha="center", transform=axes.transAxes)
        axes.set_yticks([])
        return
    number_N, value_N = np.array([row.number for row in finished]), _scaled(finished, index, goal)
    low, top, beyond = _value_limits(value_N)
    axes.set_ylim(low - 2.2 * beyond, top + beyond)
    _marks(axes, number_N, value_N, np.full(len(finished), POINT), top)
    axes.step(
        number_N, np.minimum.accumulate(value_N), where="post", color=BEST, label="best so far"
    )
    if (baseline := baseline_of(rows)) is not None:
        (level,) = _scaled([baseline], index, goal)
        axes.axhline(level, color=BASELINE, linestyle="--", linewidth=1.0)
        axes.plot([baseline.number], [level], "*", color=BASELINE, markersize=11, label="baseline")
    _value_axis(axes.yaxis, goal)


def slices(
    rows: Sequence[Row], keys: Sequence[str], known: Distributions, index: int, goal: Objective
) -> Figure:
    """One small panel per setting, at most 12; darker marks are later trials."""
    finished = sorted(done(rows), key=lambda row: row.number)
    short, shown = short_keys(keys_of(rows), least=2), keys[:_MOST_SLICES]
    lines = -(-len(shown) // _SLICES_A_LINE)
    columns = -(-len(shown) // lines)
    size = 7.6 if columns > 1 else 4.4, 2.45 * lines + 0.35
    around = {"left": 0.8, "top": 0.35, "bottom": 0.85}
    with framed(*size, lines, columns, sharey=True, **around) as (figure, grid):
        figure.subplots_adjust(wspace=0.12, hspace=0.75)
        for axes, key in zip(grid.flat, shown, strict=False):
            _slice_panel(axes, finished, key, known.get(key), index, goal)
            axes.set_xlabel(_ending(plain(short[key]), 26))
        for axes in list(grid.flat)[len(shown) :]:
            axes.set_visible(False)
        for line in grid[:, 0]:
            line.set_ylabel(_label(goal))
        shared_legend(figure)
    return figure


def _slice_panel(
    axes: Axes,
    finished: Sequence[Row],
    key: str,
    known: BaseDistribution | None,
    index: int,
    goal: Objective,
) -> None:
    active = [row for row in finished if key in row.params]
    every_N, value_N = _scaled(finished, index, goal), _scaled(active, index, goal)
    low, top, beyond = _value_limits(every_N)
    axes.set_ylim(low - beyond, top + beyond)
    place_N = _places(axes, active, key, known)
    age_N = np.array([row.number for row in active]) / max(finished[-1].number, 1)
    _marks(axes, place_N, value_N, matplotlib.colormaps["Blues"](0.3 + 0.65 * age_N), top)
    best = finished[int(every_N.argmin())].number
    for row, x, y in zip(active, place_N, np.minimum(value_N, top + beyond), strict=True):
        if row.baseline:
            axes.plot(
                x, y, "*", color=BASELINE, markersize=11, markeredgecolor="white",
                markeredgewidth=0.5, label="baseline", zorder=5,
            )  # fmt: skip
        if row.number == best:
            axes.plot(
                x, y, "o", markerfacecolor="none", markeredgecolor=BEST, markersize=9,
                markeredgewidth=2, label="best", zorder=6,
            )  # fmt: skip
    _value_axis(axes.yaxis, goal)
    axes.grid(axis="y")
    if len(active) < len(finished):
        axes.set_title(f"{len(active)} trials only", fontsize=8, loc="left", pad=3)


def levels_of(values: Sequence[object], known: BaseDistribution | None) -> list[str]:
    """The levels of a setting that has few values, or names; empty of one that is a number."""
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    if isinstance(known, CategoricalDistribution):
        levels: list[object] = [*known.choices, *values]
    elif isinstance(known, IntDistribution) and numbers:
        levels = sorted(set(values))  # type: ignore[type-var]
    else:
        levels = [] if numbers else list(values)
    names = list(dict.fromkeys(map(value_text, levels)))
    return [] if numbers and len(names) > _MOST_LEVELS else names


def _places(
    axes: Axes, active: Sequence[Row], key: str, known: BaseDistribution | None
) -> np.ndarray:
    """Places of the trials on the x axis, which gets its scale and its ticks."""
    values = [row.params[key] for row in active]
    if levels := levels_of(values, known):
        names = [short_label(level, 14 if len(levels) < 6 else 10) for level in levels]
        turned = sum(len(name) + 2 for name in names) > 26
        every = -(-len(names) // 20)
        axes.set_xticks(
            range(0, len(names), every), names[::every], rotation=30 if turned else 0,
            ha="right" if turned else "center", rotation_mode="anchor" if turned else "default",
        )  # fmt: skip
        axes.set_xlim(-0.5, len(levels) - 0.5)
        # Spread evenly by an irrational number, so that every mark is seen.
        aside_N = 2 * (0.618034 * np.array([row.number for row in active]) % 1) - 1
        level_N = np.array([levels.index(value_text(value)) for value in values])
        return level_N + min(0.3, 0.02 * len(active)) * aside_N
    place_N = np.array(values, dtype=float)
    low, high = float(place_N.min()), float(place_N.max())
    if isinstance(known, FloatDistribution | IntDistribution) and known.log:
        factor = (high / low) ** 0.06 if high > low else 1.1
        axes.set_xscale("log")
        axes.set_xlim(low / factor, high * factor)
        subs = (1, 2, 5) if high / low < 200 else (1,)
        axes.xaxis.set_major_locator(LogLocator(subs=subs, numticks=8))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.set_xlim(low - room(low, high, 0.06), high + room(low, high, 0.06))
        axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    return place_N


def bars(goals: Sequence[Objective], of_goals: Sequence[Sequence[Importance]]) -> Figure:
    """One panel of importances per objective, the most important setting on top."""
    short = short_keys([one.key for one in of_goals[0]], least=2)
    panel = 0.75 + 0.3 * min(len(of_goals[0]), _MOST_BARS)
    height = panel * len(goals) + 0.85
    with framed(7.6, height, len(goals), left=2.3, right=0.5, top=0.6) as (figure, grid):
        figure.subplots_adjust(hspace=0.75 / panel)
        for axes, goal, ones in zip(grid[:, 0], goals, of_goals, strict=True):
            _bars_panel(axes, goal, ones[:_MOST_BARS], short)
        axes.set_xlabel("share of the differences that the setting explains by itself")
        shared_legend(figure)
    return figure


def _bars_panel(
    axes: Axes, goal: Objective, ones: Sequence[Importance], short: Mapping[str, str]
) -> None:
    names = []
    for place, one in enumerate(ones):
        only = f" ({one.trials} trials)" if one.conditional else ""
        names.append(_ending(plain(short[one.key]), 32 - len(only)) + only)
        if one.share is None:
            few = one.trials < FEWEST_TRIALS
            why = f"fewer than {FEWEST_TRIALS} trials" if few else "always the same value"
            axes.text(0.01, place, why, va="center", color=FAINT, fontsize=8)
            continue
        axes.barh(place, one.share, 0.6, color="#56b4e9")
        axes.text(1.01, place, f"{one.share:.0%}", va="center", color=INK, fontsize=8)
        axes.plot(
            one.chance, place, "|", color=BASELINE, markersize=11, markeredgewidth=2,
            label="what chance reaches",
        )  # fmt: skip
    trials = max((one.trials for one in ones), default=0)
    axes.set_title(f"{plain(goal.name)}, {trials} trials", loc="left")
    axes.set_yticks(range(len(ones)), names)
    axes.set_ylim(len(ones) - 0.4, -0.6)
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))
    axes.grid(axis="x")


def pareto(rows: Sequence[Row], goals: Sequence[Objective]) -> Figure:
    """One panel per pair of objectives, at most 3; a front trial has its layout beside it.

    Trials of one network with the same values are one point. The cost lies along x, as in the
    figure of a comparison.
    """
    pairs = list(combinations(range(len(goals)), 2))[:_MOST_FRONTS]
    height = 0.3 + 4.1 * len(pairs)
    with framed(7.6, height, len(pairs), left=0.9, right=0.25, bottom=0.65) as (figure, grid):
        for axes, (first, second) in zip(grid[:, 0], pairs, strict=True):
            _pareto_panel(axes, rows, (second, first), goals)
        shared_legend(figure)
    return figure


def _pareto_panel(
    axes: Axes, rows: Sequence[Row], pair: tuple[int, int], goals: Sequence[Objective]
) -> None:
    finished, unbeaten = distinct_trials(rows), front(rows)
    beaten = [row for row in finished if row not in unbeaten]
    all_N2, front_N2, beaten_N2 = (
        np.column_stack([_scaled(some, index, goals[index]) for index in pair])
        for some in (finished, unbeaten, beaten)
    )
    # Room for names; what went wrong lies outside.
    low_2, top_2 = all_N2.min(axis=0), front_N2.max(axis=0)
    top_2 = np.maximum(top_2, [highest_shown(values_N) for values_N in all_N2.T])
    space_2 = [room(*ends) for ends in zip(low_2, top_2, (0.2, 0.12), strict=True)]
    axes.set_xlim(low_2[0] - space_2[0], top_2[0] + space_2[0])
    axes.set_ylim(low_2[1] - space_2[1], top_2[1] + space_2[1])
    if beaten:
        outside = int((beaten_N2 > top_2 + space_2).any(axis=1).sum())
        label = f"beaten ({outside} outside)" if outside else "beaten"
        axes.plot(*beaten_N2.T, "o", color=POINT, markersize=4.5, alpha=0.45, label=label)
    steps_N2 = stairs(*front_N2.T)
    if len(goals) == 2:
        axes.plot(*steps_N2.T, color=BEST, linewidth=1.2)
    axes.plot(*front_N2.T, "o", color=BEST, markersize=6.5, label="beaten by none")
    for row, place_2 in zip(finished, all_N2, strict=True):
        if row.baseline:
            axes.plot(*place_2, "*", color=BASELINE, markersize=12, label="baseline")
    x, y = (goals[index] for index in pair)
    axes.set_xlabel(_label(x).replace("\n", ", "))
    axes.set_ylabel(_label(y))
    axes.set_title("lower and further left is better", loc="left", color="#666666")
    axes.grid()
    _value_axis(axes.xaxis, x)
    _value_axis(axes.yaxis, y)
    order = np.lexsort((front_N2[:, 1], front_N2[:, 0]))[thin(len(unbeaten), _MOST_NAMES)]
    named = [unbeaten[int(i)] for i in order]
    names = [shorten(f"{row.number}: {row.shown_layout}", 18) for row in named]
    x_N, y_N = front_N2[order].T
    name_points(axes, names, x_N, y_N, np.concatenate([all_N2, steps_N2]))


def _scaled(rows: Sequence[Row], index: int, goal: Objective) -> np.ndarray:
    """The trials' values in one objective, in the shown unit."""
    return np.array([goal.scaled(row.values[index]) for row in rows if row.values])


def highest_shown(value_N: np.ndarray) -> float:
    """The top of the axis: a trial that went wrong does not squeeze all others together."""
    low, high = np.quantile(value_N, [0.25, 0.75])
    fence = high + 5 * (high - low)
    return float(value_N[value_N <= fence].max()) if high > low else float(value_N.max())


def _value_limits(value_N: np.ndarray) -> tuple[float, float, float]:
    """The lowest value, the highest one that is shown, and the room beyond both."""
    low, top = float(value_N.min()), highest_shown(value_N)
    return low, top, room(low, top, 0.08)


def _marks(
    axes: Axes, x_N: np.ndarray, value_N: np.ndarray, colour_N: np.ndarray, top: float
) -> None:
    """A dot for each trial; what lies above the axis is a triangle on its upper edge."""
    above_N = value_N > top
    for chosen_N, mark, label in ((~above_N, "o", "finished"), (above_N, "^", "above the axis")):
        if chosen_N.any():
            axes.scatter(
                x_N[chosen_N], np.minimum(value_N[chosen_N], axes.get_ylim()[1]), s=20,
                marker=mark, c=colour_N[chosen_N],
                edgecolors="#5a5a5a", linewidths=0.4, clip_on=mark == "o", label=label, zorder=3,
            )  # fmt: skip


def _value_axis(axis: Axis, goal: Objective) -> None:
    """Plain numbers on an axis of values, few of them."""
    axis.set_major_locator(MaxNLocator(5))
    if goal.name != "flops":
        axis.set_major_formatter(
            FuncFormatter(lambda value, _: goal.text(value) if abs(value) >= 1000 else f"{value:g}")
        )


def _label(goal: Objective) -> str:
    """Name and unit of an objective, on two lines."""
    name, unit = short_label(goal.name, 30), short_label(goal.shown_unit, 34)
    return name if name == unit else f"{name}\n{unit}"


def _ending(text: str, most: int) -> str:
    """`text` cut to its last `most` characters: the end of a dotted key says most."""
    return text if len(text) <= most else f"..{text[2 - most :]}"
