"""What a derivation trained: figure, sentence and section.

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
    HUES,
    cost_axes,
    framed,
    headline,
    limits,
    name_points,
    png,
    stairs,
)
from report.run_files import read_chosen
from utils.files import write_whole
from utils.text import compact


def _read_table(path: Path) -> pd.DataFrame:
    return pd.read_csv(path, keep_default_na=False, na_values={"foreseen_nats": [""]})


@dataclass(frozen=True)
class TrainingTables:
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


def read_trainings(run_folder: Path) -> TrainingTables | None:
    """Read what was trained for the chosen layout; None where nothing was."""
    name = read_chosen(run_folder).get("name")
    path, front = (run_folder / "architectures" / f"{name}{end}" for end in (".csv", "-front.csv"))
    if not (path.exists() and front.exists()):
        return None
    return TrainingTables(_read_table(path), _read_table(front))


def write_trainings_figure(run_folder: Path) -> Path:
    """Draw RUN/trainings.png of what was trained for the chosen layout."""
    trainings = read_trainings(run_folder)
    assert trainings is not None
    return write_whole(run_folder / "trainings.png", png(trainings_figure(trainings)))


def trainings_figure(trainings: TrainingTables) -> Figure:
    """Perplexity by FLOPs of what was trained in full and of what is expected to be best."""
    front, trained = trainings.front, trainings.full
    trained = trained[np.isfinite(trained["nats"])]
    keys = ["flops_per_token", "expected_nats", "expected_sd"]
    flops_N, nats_N, sd_N = front[keys].to_numpy(float).T
    best_N, low_N, high_N = np.exp(nats_N), np.exp(nats_N - sd_N), np.exp(nats_N + sd_N)
    # A seed may be easier than another, so means of the layouts that had it are not compared.
    nats_F = trained["nats" if trainings.probed else "expected"]
    x_F, y_F = trained["flops"].to_numpy(float), np.exp(nats_F.to_numpy(float))
    with framed(7.6, 4.2, left=0.85, right=0.25, bottom=0.6) as (figure, grid):
        axes: Axes = grid[0, 0]
        steps_N2 = stairs(flops_N, best_N)
        axes.plot(*steps_N2.T, color=HUES["front"], linewidth=1.2)
        best = "best for its FLOPs ± 1 sd"
        if trainings.probed:
            best = "expected best ± 1 sd beside the chosen"
        axes.errorbar(flops_N, best_N, yerr=(best_N - low_N, high_N - best_N), fmt="s",
                      color=HUES["front"], markersize=5, elinewidth=1, zorder=1,
                      label=best)  # fmt: skip
        axes.plot(x_F, y_F, "o", color=HUES["baseline"], markersize=5, label="trained in full")
        axes.plot(x_F[:1], y_F[:1], "*", color=HUES["chosen"], markersize=13, label="chosen layout")
        axes.set_xlim(limits(np.concatenate([flops_N, x_F]), 0.12))
        axes.set_ylim(limits(np.concatenate([low_N, high_N, y_F]), 0.12))
        cost_axes(axes, COSTS["flops"], "validation perplexity")
        headline(figure, "Which layout is best for its FLOPs?")
        bars_N2 = np.column_stack([np.tile(flops_N, 9), np.linspace(low_N, high_N, 9).ravel()])
        name_points(axes, [*trained.index], x_F, y_F, np.concatenate([steps_N2, bars_N2]))
    return figure


def trainings_sentence(trainings: TrainingTables) -> str:
    """How many trainings chose the layout, and how far the next one is behind."""
    count, trained = trainings.rows["layout"].nunique(), trainings.full["expected"]
    layouts = "1 layout" if count == 1 else f"{count} layouts"
    said = f"{len(trainings.rows)} trainings of {layouts} chose it by validation loss"
    if len(trained) < 2:
        return f"{said}."
    others = trained.iloc[1:]
    beside = others.min() - trained.iloc[0]
    return (
        f"{said}. The best other, {others.idxmin()}, is expected {beside:+.4f} nats/token above it."
    )


def trainings_section(trainings: TrainingTables) -> html.Section:
    """Section of the trainings for the chosen layout."""
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
    several = trained["trainings"].max() > 1
    halves = int((trainings.rows["length"] == "half").sum())
    note = (
        f"{halves} trainings of half length chose what to try. Full trainings of the best, with "
        "the same fresh seeds for all, decided. The front is what the regression expects of "
        "layouts, most of which were never trained; its bars are of the difference from the chosen."
        if trainings.probed
        else "All hand-written layouts, and those of a search where there was one, were trained "
        f"with one seed{', the best with further ones' if several else ''}; these decided."
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
