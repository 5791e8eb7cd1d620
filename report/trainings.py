"""Trainings of a derivation: in order, the finals as probes foresaw them, the front."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from report import html
from report.plotting import (
    SEARCHED,
    cost_axes,
    house_style,
    make_figure,
    margins,
    name_points,
    png,
    room,
    stairs,
)
from report.run_files import read_json, reading
from utils.files import write_whole
from utils.text import compact

FILE = "trainings.png"
_TEXTS = ("layout", "length", "answer")
_NUMBERS = ("valid_nats", "expected_nats", "expected_sd", "flops_per_token", "foreseen_nats")
_HALF, _FULL, _GREY = "#999999", "#0072b2", "#666666"


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
    def finals(self) -> pd.DataFrame:
        """The layouts that were trained in full, by name, the chosen one first.

        Then come those with most trainings: what was trained once was passed over. `nats` are
        the mean, infinite where a training diverged; `foreseen` is what the probes alone let
        expect.
        """
        full = self.rows[self.rows["length"] == "full"]
        finals = full.groupby("layout").agg(
            nats=("valid_nats", "mean"),
            expected=("expected_nats", "first"),
            flops=("flops_per_token", "first"),
            foreseen=("foreseen_nats", "first"),
            trainings=("seed", "size"),
            answer=("answer", "first"),
        )
        finals["answer"] = finals["answer"] != ""
        order = ["answer", "trainings", "expected"]
        return finals.sort_values(order, ascending=[False, False, True])


def read_trainings(run_folder: Path) -> Trainings | None:
    """Read what was trained for the chosen layout; None where nothing was.

    Raises:
        ValueError: one of the files is broken; the message names it.
    """
    if not (run_folder / "architecture.json").exists():
        return None
    name = read_json(run_folder / "architecture.json")["name"]
    path, front = (run_folder / "architectures" / f"{name}{end}" for end in (".csv", "-front.csv"))
    if not (path.exists() and front.exists()):
        return None
    return Trainings(_read_rows(path), _read_rows(front))


def _read_rows(path: Path) -> pd.DataFrame:
    types = {**dict.fromkeys(_TEXTS, str), **dict.fromkeys(_NUMBERS, float)}
    with reading(path):
        return pd.read_csv(
            path, dtype=types, keep_default_na=False, na_values={"foreseen_nats": [""]}
        )


def write_trainings_figure(run_folder: Path) -> Path | None:
    """Draw RUN/trainings.png; None where nothing was trained for the chosen layout."""
    trainings = read_trainings(run_folder)
    if trainings is None:
        return None
    return write_whole(run_folder / FILE, png(trainings_figure(trainings)))


def trainings_figure(trainings: Trainings) -> Figure:
    """In order what was tried; the finals as foreseen and as trained; nats against FLOPs."""
    with house_style():
        figure = make_figure(12.5, 4.2)
        panels = [_tried, _foreseen, _front] if trainings.probed else [_tried, _front]
        margins(figure, left=0.8, right=0.2, top=0.45, bottom=0.6)
        figure.subplots_adjust(wspace=0.32)
        for draw, axes in zip(panels, figure.subplots(1, len(panels)), strict=True):
            draw(axes, trainings)
    return figure


def _tried(axes: Axes, trainings: Trainings) -> None:
    rows = trainings.rows.assign(place=range(1, len(trainings.rows) + 1))
    rows = rows[np.isfinite(rows["valid_nats"])]
    for length, colour in (("half", _HALF), ("full", _FULL)):
        some = rows[rows["length"] == length]
        if len(some):
            axes.plot(some["place"], some["valid_nats"], "o", color=colour, markersize=5.5,
                      label=f"{length} length")  # fmt: skip
    own = rows[rows["layout"] == trainings.finals.index[0]]
    if len(own):
        axes.plot(own["place"], own["valid_nats"], "o", markersize=10, markerfacecolor="none",
                  markeredgecolor=SEARCHED, label="the answer")  # fmt: skip
    axes.set_title("what was trained, in order", loc="left", color=_GREY)
    cost_axes(axes, "training", "validation nats per token", "{:.0f}".format)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.legend(loc="best")


def _foreseen(axes: Axes, trainings: Trainings) -> None:
    """As differences from the finals' mean: what half length gets wrong of all does not count."""
    finals = trainings.finals[np.isfinite(trainings.finals["nats"])]
    x_F, y_F = ((finals[key] - finals[key].mean()).to_numpy(float) for key in ("foreseen", "nats"))
    axes.axline((0.0, 0.0), slope=1.0, color="#cccccc", linewidth=1.0)
    axes.plot(x_F, y_F, "o", color=_FULL, markersize=6.5)
    axes.plot(x_F[:1], y_F[:1], "o", markersize=11, markerfacecolor="none",
              markeredgecolor=SEARCHED)  # fmt: skip
    reach = max(float(np.abs([x_F, y_F]).max()), 1e-3) * 1.35
    axes.set_xlim(-reach, reach)
    axes.set_ylim(-reach, reach)
    axes.set_title("the finals, less their mean", loc="left", color=_GREY)
    cost_axes(axes, "foreseen by the probes, nats", "trained, nats", "{:g}".format)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    names = [str(layout).replace(" ", "") for layout in finals.index]
    name_points(axes, names, x_F, y_F)


def _front(axes: Axes, trainings: Trainings) -> None:
    flops_N, nats_N, sd_N = (
        trainings.front[key].to_numpy(float)
        for key in ("flops_per_token", "expected_nats", "expected_sd")
    )
    steps_N2 = stairs(flops_N, nats_N)
    axes.plot(*steps_N2.T, color=SEARCHED, linewidth=1.2)
    expected = "expected (1 sd beside the answer)" if trainings.probed else "trained (1 sd)"
    axes.errorbar(flops_N, nats_N, yerr=sd_N, fmt="o", color=SEARCHED, markersize=5,
                  elinewidth=1, label=expected)  # fmt: skip
    finals = trainings.finals[np.isfinite(trainings.finals["nats"])]
    x_F, y_F = finals["flops"].to_numpy(float), finals["nats"].to_numpy(float)
    axes.plot(x_F, y_F, "D", color=_FULL, markersize=6, label="trained in full")
    both_x, both_y = np.concatenate([flops_N, x_F]), np.concatenate([nats_N, y_F])
    space = room(float(both_x.min()), float(both_x.max()), 0.12)
    axes.set_xlim(float(both_x.min()) - space, float(both_x.max()) + space)
    title = "no cheaper one is expected to beat these" if trainings.probed else "nats and FLOPs"
    axes.set_title(title, loc="left", color=_GREY)
    cost_axes(axes, "forward FLOPs per token", "nats per token, full length")
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.legend(loc="best")
    least = float(both_y.min())
    axes.set_ylim(least - 0.1 * (float(both_y.max()) - least) - 1e-3, None)


def trainings_section(run_folder: Path) -> html.Section | None:
    """Section of the trainings for the chosen layout; None where nothing was trained."""
    trainings = read_trainings(run_folder)
    if trainings is None:
        return None
    columns = [("layout", ""), ("FLOPs", "per token"), ("nats", "trained, mean"),
               ("expected", "by all trainings"), ("trainings", "full length")]  # fmt: skip
    finals = trainings.finals
    rows = [
        (
            not place,
            [str(layout), compact(row["flops"]), f"{row['nats']:.4f}", f"{row['expected']:.4f}",
             str(row["trainings"])],
        )
        for place, (layout, row) in enumerate(finals.iterrows())
    ]  # fmt: skip
    halves = int((trainings.rows["length"] == "half").sum())
    note = (
        f"{halves} trainings of half length said what to try; the finals, with the same fresh "
        "seeds for all, decided. The front is what the regression expects of layouts that were "
        "mostly never trained."
        if trainings.probed
        else "All that rules, and a search where there was one, propose was trained with one seed, "
        "the best of it with the others too; these decided."
    )
    alt = f"Charts of what was trained; best of the finals: {finals.index[0]}"
    caption = "What was trained for the layout"
    body = html.render(
        "exhibit.html.j2",
        pictures=[html.Picture(png(trainings_figure(trainings)), caption, alt)],
        table=html.Table(columns, rows, left=1, label="the finals"),
        notes=[note],
    )
    return html.Section("probes", "What was trained for it", body)
