"""Importances of a sweep's settings as bars with their intervals."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from report.style import FAINT, INK, house_style, make_figure, margins, plain
from report.sweep_importance import FEWEST_TRIALS, Importance
from report.sweep_rows import Objective, ending

_MOST_BARS = 16
_BAR, _CHANCE = "#56b4e9", "#d55e00"


def bars(
    found: Sequence[tuple[Objective, Sequence[Importance]]], short: Mapping[str, str]
) -> Figure:
    """One panel per objective, the most important setting on top."""
    heights = [0.75 + 0.3 * min(len(ones), _MOST_BARS) for _, ones in found]
    with house_style():
        figure = make_figure(7.6, sum(heights) + 0.85)
        panels = figure.subplots(
            len(found), 1, squeeze=False, gridspec_kw={"height_ratios": heights}
        )[:, 0]
        margins(figure, left=2.3, right=0.5, top=0.6, bottom=0.55)
        figure.subplots_adjust(hspace=0.75 * len(heights) / sum(heights))
        for axes, (goal, ones) in zip(panels, found, strict=True):
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
            said = f"fewer than {FEWEST_TRIALS} trials" if few else "always the same value"
            axes.text(0.01, place, said, va="center", color=FAINT, fontsize=8)
    known = [(place, one) for place, one in enumerate(ones) if one.share is not None]
    places = [place for place, _ in known]
    shares = [one.share or 0.0 for _, one in known]
    axes.barh(places, shares, 0.6, color=_BAR)
    axes.hlines(
        places,
        [one.low for _, one in known],
        [one.high for _, one in known],
        color=INK,
        linewidth=1.2,
        label="95% interval",
    )
    for place, one in known:
        axes.text(1.01, place, f"{one.share:.0%}", va="center", color=INK, fontsize=8)
    axes.plot(
        [one.chance for _, one in known],
        places,
        "|",
        color=_CHANCE,
        markersize=11,
        markeredgewidth=2,
        label="what chance reaches",
    )
    trials = max((one.trials for one in ones), default=0)
    title = f"{plain(goal.name)}, {trials} trials"
    axes.set_title(title, loc="left")
    axes.set_yticks(range(len(ones)), names)
    axes.set_ylim(len(ones) - 0.4, -0.6)
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))
    axes.grid(axis="x")
