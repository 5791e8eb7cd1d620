"""What a derivation weighed: a front of scored layouts, and trainings; their figures and sections.

F layouts trained in full
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from report import html
from report.html import Column
from report.plotting import (
    COSTS,
    FAINT,
    HUES,
    cost_axes,
    framed,
    headline,
    limits,
    name_points,
    png,
    stairs,
)
from report.run_files import reading
from utils.files import read_object, write_whole
from utils.text import compact

_MOST_NAMES = 12
# So many times as far from the best as the front's median the axis reaches.
_MOST_TYPICAL = 4.0


def _read_table(path: Path) -> pd.DataFrame:
    with reading(path):
        unknown = {"foreseen_nats": [""]}
        return pd.read_csv(path, keep_default_na=False, na_values=unknown)


@dataclass(frozen=True)
class FrontTable:
    """The rows of `pareto.csv`, the cheapest first, what the cost is, and the layout of 1x."""

    rows: pd.DataFrame
    cost: str
    unit: str
    reference: str

    @property
    def front(self) -> pd.DataFrame:
        """The layouts that none beats."""
        return self.rows[self.rows["front"] == 1]


def read_front(run_folder: Path) -> FrontTable | None:
    """The front that derive.py wrote; None where there is none."""
    table, summary = run_folder / "pareto.csv", run_folder / "pareto.json"
    if not (table.exists() and summary.exists()):
        return None
    known, rows = read_object(summary), _read_table(table)
    with reading(summary):
        return FrontTable(rows, known["cost"], known["unit"], known["reference"])


def front_sentence(run_folder: Path) -> str:
    """Count and costs of the layouts on the front; nothing where there is none."""
    table = read_front(run_folder)
    if table is None:
        return ""
    times = table.front["times_reference"]
    return (
        f"The front holds {len(times)} of {len(table.rows)} scored layouts, at {times.min():.2f}x "
        f"to {times.max():.2f}x of {table.reference}'s {table.cost}. None is trained for it yet."
    )


def write_front_figure(run_folder: Path) -> Path:
    """Draw RUN/pareto.png from the files of the front."""
    table = read_front(run_folder)
    assert table is not None, run_folder
    return write_whole(run_folder / "pareto.png", png(front_figure(table)))


def front_figure(table: FrontTable) -> Figure:
    """Every layout's score against its cost; the front as stairs, it and the rules named."""
    rows, front = table.rows, table.front
    rules = rows[rows["rule"] != ""]
    beaten = rows.drop([*front.index, *rules.index], errors="ignore")
    with framed(7.6, 4.2, left=0.85, right=0.25, bottom=0.6) as (figure, grid):
        axes: Axes = grid[0, 0]
        above = _limit(axes, rows, front)
        for some, mark, colour, size, words in (
            (beaten, "o", FAINT, 4.0, "off the front"),
            (front, "s", HUES["front"], 6.5, f"Pareto front of {len(rows)} layouts"),
            (rules, "o", HUES["baseline"], 6.5, "hand-written layouts"),
        ):
            if len(some):
                axes.plot(*_places(some), mark, color=colour, markersize=size, label=words,
                          markeredgecolor="white", markeredgewidth=0.6, zorder=3)  # fmt: skip
        steps_N2 = stairs(*_places(front))
        axes.plot(*steps_N2.T, color=HUES["front"], linewidth=1.2)
        cost_axes(axes, COSTS[table.cost], "validation perplexity")
        more = f" ({above} above the figure)" if above else ""
        headline(figure, f"Which layouts does the SuperNet find best for their cost?{more}")
        inside = pd.concat([rules, front])
        inside = inside[_places(inside)[1] <= axes.get_ylim()[1]]
        named = inside.drop_duplicates("layout")[:_MOST_NAMES]
        others_N2 = np.concatenate([np.column_stack(_places(beaten)), steps_N2])
        name_points(axes, [*named["layout"]], *_places(named), others_N2, [*named["rule"]])
    return figure


def _places(rows: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Costs and perplexities."""
    return rows["cost"].to_numpy(float), np.exp(rows["nats_per_token"].to_numpy(float))


def _limit(axes: Axes, rows: pd.DataFrame, front: pd.DataFrame) -> int:
    """Give the axes room for names; layouts that predict next to nothing lie above, so many."""
    x_N, y_N = _places(rows)
    least, typical = float(y_N.min()), float(np.median(_places(front)[1]))
    one_x = y_N[rows["times_reference"] == 1.0]
    far = least + _MOST_TYPICAL * max(typical - least, 1e-3 * least)
    # The reference is always to be seen: what lies left of it is what is saved.
    top = min(float(y_N.max()), max([far, *one_x]))
    axes.set_xlim(limits(x_N, 0.12))
    axes.set_ylim(limits(np.array([least, top]), 0.15))
    return int((y_N > axes.get_ylim()[1]).sum())


def front_section(run_folder: Path) -> html.Section | None:
    """The front: figure and table; None where there is none."""
    table = read_front(run_folder)
    if table is None:
        return None
    columns = [
        Column("layout", "", "layout"),
        Column("name", "", "rule"),
        Column(table.cost, table.unit, "cost", "{:.4g}".format),
        Column("relative", f"to {table.reference}", "times_reference", "{:.3f}x".format),
        Column("loss", "nats per token", "nats_per_token", "{:.4f}".format),
    ]
    rows = table.rows[(table.rows["front"] == 1) | (table.rows["rule"] != "")]
    note = (
        f"The front is of the {len(table.rows)} layouts that were scored for it. Scores use the "
        "SuperNet's weights on validation text; a training may rank layouts differently: "
        "compare.py --pareto trains the front."
    )
    alt = f"Scatter plot of nats against {COSTS[table.cost]} of {len(table.rows)} layouts"
    figure = html.Picture(png(front_figure(table)), "What layouts cost and how they score", alt)
    shown = html.table_of(rows, columns, rows["front"] == 1, left=2, label="the front")
    return html.exhibit("front", "The front", shown, notes=[note], pictures=[figure])


@dataclass(frozen=True)
class Trainings:
    """Trainings in order, and the layouts that no cheaper one is expected to beat."""

    rows: pd.DataFrame
    front: pd.DataFrame

    @property
    def probed(self) -> bool:
        """True where trainings of half length said what to try."""
        return bool((self.rows["length"] == "half").any())

    @property
    def full(self) -> pd.DataFrame:
        """The layouts that were trained in full, by name, the chosen one first.

        Then come those with most trainings: what was trained once was passed over. `nats` are
        the mean, infinite where a training diverged; `foreseen` is what the short ones alone let
        expect.
        """
        full = self.rows[self.rows["length"] == "full"]
        trained = full.groupby("layout").agg(
            nats=("valid_nats", "mean"),
            expected=("expected_nats", "first"),
            flops=("flops_per_token", "first"),
            foreseen=("foreseen_nats", "first"),
            trainings=("seed", "size"),
            answer=("answer", "first"),
        )
        trained["answer"] = trained["answer"] != ""
        order = ["answer", "trainings", "expected"]
        return trained.sort_values(order, ascending=[False, False, True])


def read_trainings(run_folder: Path) -> Trainings | None:
    """Read what was trained for the chosen layout; None where nothing was."""
    if not (run_folder / "architecture.json").exists():
        return None
    name = read_object(run_folder / "architecture.json")["name"]
    path, front = (run_folder / "architectures" / f"{name}{end}" for end in (".csv", "-front.csv"))
    if not (path.exists() and front.exists()):
        return None
    return Trainings(_read_table(path), _read_table(front))


def write_trainings_figure(run_folder: Path) -> Path | None:
    """Draw RUN/trainings.png; None where nothing was trained for the chosen layout."""
    trainings = read_trainings(run_folder)
    if trainings is None:
        return None
    return write_whole(run_folder / "trainings.png", png(trainings_figure(trainings)))


def trainings_figure(trainings: Trainings) -> Figure:
    """Perplexity by FLOPs of what was trained in full and of what is expected to be best."""
    front, trained = trainings.front, trainings.full
    trained = trained[np.isfinite(trained["nats"])]
    keys = ["flops_per_token", "expected_nats", "expected_sd"]
    flops_N, nats_N, sd_N = front[keys].to_numpy(float).T
    best_N, low_N, high_N = np.exp(nats_N), np.exp(nats_N - sd_N), np.exp(nats_N + sd_N)
    x_F, y_F = trained["flops"].to_numpy(float), np.exp(trained["nats"].to_numpy(float))
    with framed(7.6, 4.2, left=0.85, right=0.25, bottom=0.6) as (figure, grid):
        axes: Axes = grid[0, 0]
        steps_N2 = stairs(flops_N, best_N)
        axes.plot(*steps_N2.T, color=HUES["front"], linewidth=1.2)
        best = "expected to be best" if trainings.probed else "best"
        axes.errorbar(flops_N, best_N, yerr=(best_N - low_N, high_N - best_N), fmt="s",
                      color=HUES["front"], markersize=5, elinewidth=1, zorder=1,
                      label=f"{best} for its FLOPs ± 1 sd")  # fmt: skip
        axes.plot(x_F, y_F, "o", color=HUES["baseline"], markersize=5, label="trained in full")
        axes.plot(x_F[:1], y_F[:1], "*", color=HUES["chosen"], markersize=13, label="chosen layout")
        axes.set_xlim(limits(np.concatenate([flops_N, x_F]), 0.12))
        axes.set_ylim(limits(np.concatenate([low_N, high_N, y_F]), 0.12))
        cost_axes(axes, COSTS["flops"], "validation perplexity")
        headline(figure, "Which layout is best for its FLOPs?")
        bars_N2 = np.column_stack([np.tile(flops_N, 9), np.linspace(low_N, high_N, 9).ravel()])
        name_points(axes, [*trained.index], x_F, y_F, np.concatenate([steps_N2, bars_N2]))
    return figure


def trainings_sentence(run_folder: Path) -> str:
    """How many trainings chose the layout, and how far the next one is behind; else nothing."""
    trainings = read_trainings(run_folder)
    if trainings is None:
        return ""
    count, trained = trainings.rows["layout"].nunique(), trainings.full["expected"]
    layouts = "1 layout" if count == 1 else f"{count} layouts"
    said = f"{len(trainings.rows)} trainings of {layouts} chose it by validation loss"
    if len(trained) < 2:
        return f"{said}."
    others = trained.iloc[1:]
    beside = others.min() - trained.iloc[0]
    return (
        f"{said}. The next best, {others.idxmin()}, is expected {beside:+.4f} nats/token from it."
    )


def trainings_section(run_folder: Path) -> html.Section | None:
    """Section of the trainings for the chosen layout; None where nothing was trained."""
    trainings = read_trainings(run_folder)
    if trainings is None:
        return None
    trained = trainings.full.reset_index()
    foreseen = Column("expected nats", "by half length", "foreseen", "{:.4f}".format)
    columns = [
        Column("layout", "", "layout"),
        Column("FLOPs", "per token", "flops", compact),
        *([foreseen] if trainings.probed else []),
        Column("measured nats", "full length, mean", "nats", "{:.4f}".format),
        Column("expected nats", "by all trainings", "expected", "{:.4f}".format),
        Column("trainings", "full length", "trainings"),
    ]
    halves = int((trainings.rows["length"] == "half").sum())
    note = (
        f"{halves} trainings of half length chose what to try. Full trainings of the best, with "
        "the same fresh seeds for all, decided. The front is what the regression expects of "
        "layouts, most of which were never trained."
        if trainings.probed
        else "All hand-written layouts, and those of a search where there was one, were trained "
        "with one seed. The best were trained with the other seeds too, and these decided."
    )
    alt = (
        f"Scatter plot of nats against FLOPs; best of those trained in full: {trained['layout'][0]}"
    )
    figure = png(trainings_figure(trainings))
    picture = html.Picture(figure, "What was trained for the layout", alt)
    shown = html.table_of(
        trained, columns, trained.index == 0, left=1, label="layouts trained in full"
    )
    return html.exhibit(
        "trainings", "What was trained for it", shown, notes=[note], pictures=[picture]
    )
