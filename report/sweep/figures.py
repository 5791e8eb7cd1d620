"""The figures of a sweep: trials in order, slices of settings, the Pareto front."""

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
    HUES,
    INK,
    framed,
    headline,
    name_points,
    plain,
    png,
    room,
    short_label,
    stairs,
)
from report.sweep.importance import share_explained
from report.sweep.trials import Goal, TrialRow, baseline_of, done, front, keys_of, short_keys
from utils.files import write_whole

_FEWEST_SLICED, _MOST_SLICES, _SLICES_A_LINE, _MOST_FRONTS = 3, 12, 3, 3
Distributions = Mapping[str, BaseDistribution]


def draw_sweep(
    rows: Sequence[TrialRow], goals: Sequence[Goal], known: Distributions, folder: Path
) -> list[Path]:
    """Draw what there is to see of a sweep into `folder`; without a finished trial nothing.

    `known` says which values each setting may take.
    """
    finished, figures = sorted(done(rows), key=lambda row: row.number), dict[str, Figure]()
    if finished:
        figures["history.png"] = history(rows, goals)
    if finished and len(goals) > 1:
        figures["pareto.png"] = pareto(finished, goals)
    if len(finished) >= _FEWEST_SLICED:
        for index, goal in enumerate(goals):
            figures[f"slice-{index + 1}.png"] = slices(finished, known, index, goal)
    folder.mkdir(parents=True, exist_ok=True)
    return [write_whole(folder / name, png(figure)) for name, figure in figures.items()]


def history(rows: Sequence[TrialRow], goals: Sequence[Goal]) -> Figure:
    """One panel per objective; trials that failed or were pruned are on its upper edge."""
    finished = sorted(done(rows), key=lambda row: row.number)
    without = [row.number for row in rows if row.state in ("failed", "pruned")]
    height, lines = 1.0 + 2.7 * len(goals), len(goals)
    with framed(7.6, height, lines, left=1.0, sharex=True) as (figure, grid):
        for index, (axes, goal) in enumerate(zip(grid[:, 0], goals, strict=True)):
            number_N, value_N = [row.number for row in finished], _values(finished, index)
            _dots(axes, number_N, value_N, value_N, goal, HUES["baseline"])
            best_N = np.minimum.accumulate(value_N)
            axes.step(number_N, best_N, where="post", color=HUES["front"], label="best so far")
            axes.plot(
                without, [0.96] * len(without), "x", color=FAINT, label="failed or pruned",
                transform=axes.get_xaxis_transform(),
            )  # fmt: skip
            if (baseline := baseline_of(rows)) is not None:
                (level,) = _values([baseline], index)
                axes.axhline(level, color=INK, linestyle="--", linewidth=1.0)
                _star(axes, baseline.number, level)
            axes.set_ylabel(_label(goal))
        axes.set_xlabel("trial")
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
        headline(figure, "Does the sweep still improve? (lower is better)")
    return figure


def slices(finished: Sequence[TrialRow], known: Distributions, index: int, goal: Goal) -> Figure:
    """One panel per setting, at most 12, what explains most first; darker marks are later."""
    keys = keys_of(finished)
    shares = {key: share_explained(finished, key, index) for key in keys}
    shown = sorted(keys, key=lambda key: -(shares[key] or (0.0,))[0])[:_MOST_SLICES]
    short, lines = short_keys(keys, least=2), -(-len(shown) // _SLICES_A_LINE)
    columns = -(-len(shown) // lines)
    size = 7.6 if columns > 1 else 4.4, 2.6 * lines + 0.45
    around = {"left": 1.0, "top": 0.65, "bottom": 0.85}
    with framed(*size, lines, columns, sharey=True, **around) as (figure, grid):
        figure.subplots_adjust(wspace=0.12, hspace=0.95)
        for axes, key in zip(grid.flat, shown, strict=False):
            active = [row for row in finished if key in row.params]
            place_N = _places(axes, [row.params[key] for row in active], known[key])
            age_N = np.array([row.number for row in active]) / max(finished[-1].number, 1)
            colour_N4 = matplotlib.colormaps["Greys"](0.3 + 0.65 * age_N)
            _dots(axes, place_N, _values(active, index), _values(finished, index), goal, colour_N4)
            for row, x in zip(active, place_N, strict=True):
                if row.baseline:
                    _star(axes, x, row.value(index))
            share = shares[key]
            said = [f"explains {share[0]:.0%} (chance {share[1]:.0%})"] if share else []
            said += [f"{len(active)} trials only"] if len(active) < len(finished) else []
            axes.set_title("\n".join(said), fontsize=9, loc="left", pad=3)
            axes.set_xlabel(_ending(plain(short[key]), 26))
        for axes in list(grid.flat)[len(shown) :]:
            axes.set_visible(False)
        for line in grid[:, 0]:
            line.set_ylabel(_label(goal))
        headline(figure, "")
    return figure


def _places(axes: Axes, values: Sequence[object], known: BaseDistribution) -> np.ndarray:
    """Places of the trials on the x axis, which gets its scale and its ticks."""
    if isinstance(known, CategoricalDistribution):
        names = [short_label(str(choice), 14) for choice in known.choices]
        turned = sum(len(name) + 2 for name in names) > 26
        axes.set_xticks(
            range(len(names)), names, rotation=30 if turned else 0,
            ha="right" if turned else "center", rotation_mode="anchor",
        )  # fmt: skip
        axes.set_xlim(-0.5, len(names) - 0.5)
        return np.array([known.choices.index(value) for value in values], dtype=float)
    assert isinstance(known, FloatDistribution | IntDistribution)
    if known.log:
        axes.set_xscale("log")
        span = known.high / known.low
        log = LogLocator(subs=(1, 2, 5) if span < 200 else (1,), numticks=8)
        axes.xaxis.set_major_locator(MaxNLocator(3) if span < 4 else log)
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        whole = isinstance(known, IntDistribution)
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=whole, min_n_ticks=1))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    return np.array(values, dtype=float)


def pareto(finished: Sequence[TrialRow], goals: Sequence[Goal]) -> Figure:
    """One panel per pair of objectives, at most 3; those of the front have number and layout.

    The cost lies along x, as in the figure of a comparison.
    """
    pairs = list(combinations(range(len(goals)), 2))[:_MOST_FRONTS]
    height, unbeaten, baseline = 0.4 + 4.1 * len(pairs), front(finished), baseline_of(finished)
    with framed(7.6, height, len(pairs), left=1.0, right=0.25, bottom=0.65) as (figure, grid):
        for axes, (y, x) in zip(grid[:, 0], pairs, strict=True):
            every_N, front_N = _values(finished, x), _values(unbeaten, x)
            low, top = float(every_N.min()), highest_shown(every_N)
            axes.set_xlim(low - room(low, top, 0.1), top + room(low, top, 0.1))
            others_N2 = np.column_stack([every_N, _values(finished, y)])
            every_y_N = others_N2[:, 1]
            _dots(axes, every_N, every_y_N, every_y_N, goals[y], HUES["baseline"])
            value_N, of_front = _values(unbeaten, y), {"color": HUES["front"], "zorder": 4}
            axes.plot(front_N, value_N, "s", label="Pareto front", **of_front)
            if len(goals) == 2:
                steps_N2 = stairs(front_N, value_N)
                axes.plot(*steps_N2.T, **of_front)
                others_N2 = np.concatenate([others_N2, steps_N2])
            if baseline is not None:
                _star(axes, baseline.value(x), baseline.value(y))
            axes.set_xlabel(_label(goals[x]).replace("\n", ", "))
            axes.set_ylabel(_label(goals[y]))
            axes.grid(axis="x")
            _value_axis(axes.xaxis, goals[x])
            both = [[row.layout or "", f"trial {row.number}"] for row in unbeaten]
            layouts, names = zip(*both, strict=True)
            name_points(axes, layouts, front_N, value_N, others_N2, names)
        headline(figure, "Which trials are best for their cost? (lower left)")
    return figure


def _values(rows: Sequence[TrialRow], index: int) -> np.ndarray:
    return np.array([row.value(index) for row in rows])


def highest_shown(value_N: np.ndarray) -> float:
    """The top of the axis: a trial that went wrong does not squeeze all others together."""
    low, high = np.quantile(value_N, [0.25, 0.75])
    fence = high + 5 * (high - low)
    return float(value_N[value_N <= fence].max()) if high > low else float(value_N.max())


def _dots(
    axes: Axes,
    x_N: Sequence[float] | np.ndarray,
    value_N: np.ndarray,
    every_N: np.ndarray,
    goal: Goal,
    colour: str | np.ndarray,
) -> None:
    """A dot for each trial; one that is worse than the axis shows is on its upper edge.

    The axis is that of the values `every_N`.
    """
    low, top = float(every_N.min()), highest_shown(every_N)
    upper = top + room(low, top, 0.08)
    axes.set_ylim(low - room(low, top, 0.15), upper)
    axes.scatter(
        x_N, np.minimum(value_N, upper), s=20, c=colour, edgecolors="#5a5a5a", linewidths=0.4,
        clip_on=False, label="finished trials", zorder=3,
    )  # fmt: skip
    axes.grid(axis="y")
    _value_axis(axes.yaxis, goal)


def _star(axes: Axes, x: float, value: float) -> None:
    """The trial with the file's own values."""
    axes.plot(
        x, min(value, axes.get_ylim()[1]), "*", color=INK, markersize=12,
        markeredgecolor="white", markeredgewidth=0.5, label="the file's own values", zorder=5,
    )  # fmt: skip


def _value_axis(axis: Axis, goal: Goal) -> None:
    """Plain numbers on an axis of values, few of them."""
    axis.set_major_locator(MaxNLocator(5))
    axis.set_major_formatter(
        FuncFormatter(lambda value, _: goal.text(value) if abs(value) >= 1000 else f"{value:g}")
    )


def _label(goal: Goal) -> str:
    """Name and unit of an objective, on two lines."""
    return f"{goal.name}\n{short_label(goal.unit, 34)}"


def _ending(text: str, most: int) -> str:
    """`text` cut to its last `most` characters: the end of a dotted key says most."""
    return text if len(text) <= most else f"..{text[2 - most :]}"
