"""Importances of a sweep's settings, what chance reaches, and both as bars."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from scipy.stats import chi2, kruskal

from report.plotting import FAINT, INK, house_style, make_figure, margins, plain
from report.sweep.trials import Objective, Row, done, ending, keys_of, value_text
from utils.pareto import different

FEWEST_TRIALS = 10
_MOST_LEVELS, _MOST_BINS, _PER_BIN = 6, 5, 5
_MOST_BARS = 16
_BAR, _CHANCE = "#56b4e9", "#d55e00"


@dataclass(frozen=True)
class Importance:
    """Share that one setting explains by itself, 0 to 1; None where too few trials tell."""

    key: str
    share: float | None
    chance: float  # what a setting without effect stays below in about 95% of cases
    trials: int  # in which the setting is active
    conditional: bool  # active in some trials only


def importances(rows: Sequence[Row], index: int) -> list[Importance]:
    """Each setting's share of the differences in one objective, the largest first.

    The share is eta squared of the Kruskal-Wallis test (Tomczak and Tomczak, 2014), adjusted for
    the number of groups, over the trials in which the setting is active: ranks, so that a trial
    that went wrong does not outweigh all others; numbers of many values fall into up to 5 bins of
    equally many trials. Trials of equal settings and values count once: they are one training. What
    two settings do only together is not seen, and trials that a sampler chose are not independent.
    With fewer than 10 different trials nothing is computed.

    Differs from `optuna.importance`: those need scikit-learn or, PED-ANOVA, look at the best tenth
    of the trials only, which is 3 of 30; they leave conditional settings out, and sum to 1 also
    over noise.
    """
    finished = _different(done(rows))
    if len(finished) < FEWEST_TRIALS:
        return []
    ones = [_importance(finished, key, index) for key in keys_of(finished)]
    return sorted(ones, key=lambda one: (one.share is None, -(one.share or 0.0), one.key))


def _different(rows: Sequence[Row]) -> list[Row]:
    """By number, without those that have the settings and values of an earlier one."""
    by_number = sorted(rows, key=lambda row: row.number)
    settings = [json.dumps(row.params, sort_keys=True) for row in by_number]
    return [by_number[at] for at in different(settings, [row.values or [] for row in by_number])]


def _importance(finished: Sequence[Row], key: str, index: int) -> Importance:
    active = [row for row in finished if key in row.params]
    value_N = np.array([row.values[index] for row in active if row.values])
    group_N = groups([row.params[key] for row in active])
    conditional, trials, count = len(active) < len(finished), len(active), int(group_N.max()) + 1
    if trials < FEWEST_TRIALS or count == 1 or np.ptp(value_N) == 0:
        return Importance(key, None, 0.0, trials, conditional)
    statistic = kruskal(*(value_N[group_N == group] for group in range(count))).statistic
    if count == trials:  # each value once: nothing is seen within groups
        return Importance(key, 0.0, 0.0, trials, conditional)

    def share(of: float) -> float:
        return max(0.0, float(of - count + 1) / (trials - count))

    chance = min(1.0, share(chi2.ppf(0.95, count - 1)))
    return Importance(key, share(statistic), chance, trials, conditional)


def groups(values: Sequence[Any]) -> np.ndarray:
    """A group 0, 1, ... for each value: the value itself, or a bin of numbers near each other."""
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        number_N = np.array(values, dtype=float)
        levels, level_N = np.unique(number_N, return_inverse=True)
        if len(levels) > _MOST_LEVELS:
            bins = int(np.clip(len(values) // _PER_BIN, 2, _MOST_BINS))
            edges = np.quantile(number_N, np.arange(1, bins) / bins)
            return np.unique(np.searchsorted(edges, number_N), return_inverse=True)[1]
        return level_N
    return np.unique([value_text(value) for value in values], return_inverse=True)[1]


def bars(
    of_goals: Sequence[tuple[Objective, Sequence[Importance]]], short: Mapping[str, str]
) -> Figure:
    """One panel per objective, the most important setting on top."""
    heights = [0.75 + 0.3 * min(len(ones), _MOST_BARS) for _, ones in of_goals]
    with house_style():
        figure = make_figure(7.6, sum(heights) + 0.85)
        panels = figure.subplots(
            len(of_goals), 1, squeeze=False, gridspec_kw={"height_ratios": heights}
        )[:, 0]
        margins(figure, left=2.3, right=0.5, top=0.6, bottom=0.55)
        figure.subplots_adjust(hspace=0.75 * len(heights) / sum(heights))
        for axes, (goal, ones) in zip(panels, of_goals, strict=True):
            _panel(axes, goal, ones[:_MOST_BARS], short)
        panels[-1].set_xlabel("share of the differences that the setting explains by itself")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="upper right", ncols=3)
    return figure


def _panel(
    axes: Axes, goal: Objective, ones: Sequence[Importance], short: Mapping[str, str]
) -> None:
    names = []
    for place, one in enumerate(ones):
        only = f" ({one.trials} trials)" if one.conditional else ""
        names.append(ending(plain(short[one.key]), 32 - len(only)) + only)
        if one.share is None:
            few = one.trials < FEWEST_TRIALS
            why = f"fewer than {FEWEST_TRIALS} trials" if few else "always the same value"
            axes.text(0.01, place, why, va="center", color=FAINT, fontsize=8)
    known = [(place, one) for place, one in enumerate(ones) if one.share is not None]
    places = [place for place, _ in known]
    shares = [one.share or 0.0 for _, one in known]
    axes.barh(places, shares, 0.6, color=_BAR)
    for place, one in known:
        axes.text(1.01, place, f"{one.share:.0%}", va="center", color=INK, fontsize=8)
    axes.plot(
        [one.chance for _, one in known], places, "|", color=_CHANCE, markersize=11,
        markeredgewidth=2, label="what chance reaches",
    )  # fmt: skip
    trials = max((one.trials for one in ones), default=0)
    axes.set_title(f"{plain(goal.name)}, {trials} trials", loc="left")
    axes.set_yticks(range(len(ones)), names)
    axes.set_ylim(len(ones) - 0.4, -0.6)
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))
    axes.grid(axis="x")
