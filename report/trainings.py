"""What a derivation trained: what was tried when, whether probes foresaw the finals, the front."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from report import html
from report.plotting import (
    SEARCHED,
    house_style,
    make_figure,
    margins,
    name_points,
    png,
    room,
    stairs,
)
from report.run_files import read_json, read_table, reading
from utils.files import write_whole
from utils.text import compact

FILE = "trainings.png"
_HALF, _FULL, _GREY = "#999999", "#0072b2", "#666666"


@dataclass(frozen=True)
class Row:
    """A training, or a layout of the front with what it is expected to come to as its nats.

    `foreseen` is what the probes alone let expect of a final; `is_answer`: it was chosen.
    """

    layout: str
    half: bool
    nats: float
    expected: float
    flops: float
    foreseen: float | None
    sd: float
    is_answer: bool


@dataclass(frozen=True)
class Trainings:
    """What was trained, in order, and the layouts that no cheaper one is expected to beat."""

    rows: tuple[Row, ...]
    front: tuple[Row, ...]

    @property
    def probed(self) -> bool:
        """True where trainings of half length said what to try."""
        return any(row.half for row in self.rows)

    @property
    def finals(self) -> dict[str, list[Row]]:
        """The trainings of full length by layout, the chosen one first.

        Then come those with most trainings: what was trained once was passed over.
        """
        finals: dict[str, list[Row]] = {}
        for row in sorted(self.rows, key=lambda row: row.expected):
            if not row.half:
                finals.setdefault(row.layout, []).append(row)
        return dict(
            sorted(finals.items(), key=lambda item: (not item[1][0].is_answer, -len(item[1])))
        )


def read_trainings(run_folder: Path) -> Trainings | None:
    """What was trained for the chosen layout; None where nothing was.

    Raises:
        ValueError: one of the files is broken; the message names it.
    """
    if not (run_folder / "architecture.json").exists():
        return None
    name = read_json(run_folder / "architecture.json")["name"]
    path, front = (run_folder / "architectures" / f"{name}{end}" for end in (".csv", "-front.csv"))
    if not (path.exists() and front.exists()):
        return None
    return Trainings(_rows(path, trained=True), _rows(front, trained=False))


def _rows(path: Path, *, trained: bool) -> tuple[Row, ...]:
    with reading(path):
        return tuple(_row(row, trained) for row in read_table(path))


def _row(row: Mapping[str, str], trained: bool) -> Row:
    return Row(
        layout=row["layout"],
        half=trained and row["length"] == "half",
        # Infinite where the training diverged.
        nats=float(row["valid_nats" if trained else "expected_nats"]),
        expected=float(row["expected_nats"]),
        flops=float(row["flops_per_token"]),
        foreseen=float(row["foreseen_nats"]) if trained and row["foreseen_nats"] else None,
        sd=float(row["expected_sd"]),
        is_answer=trained and bool(row["answer"]),
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


def _title(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(title, loc="left", color=_GREY)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.yaxis.set_major_locator(MaxNLocator(6))
    axes.ticklabel_format(axis="y", useOffset=False)
    axes.grid()


def _tried(axes: Axes, trainings: Trainings) -> None:
    chosen = next(iter(trainings.finals))
    numbered = [(n, row) for n, row in enumerate(trainings.rows, 1) if math.isfinite(row.nats)]
    for half, colour, words in ((True, _HALF, "half length"), (False, _FULL, "full length")):
        some = [(n, row.nats) for n, row in numbered if row.half == half]
        if some:
            axes.plot(*zip(*some, strict=True), "o", color=colour, markersize=5.5, label=words)
    own = [(n, row.nats) for n, row in numbered if row.layout == chosen]
    if own:
        axes.plot(*zip(*own, strict=True), "o", markersize=10, markerfacecolor="none",
                  markeredgecolor=SEARCHED, label="the answer")  # fmt: skip
    _title(axes, "what was trained, in order", "training", "validation nats per token")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.legend(loc="best")


def _foreseen(axes: Axes, trainings: Trainings) -> None:
    """As differences from the finals' mean: what half length gets wrong of all does not count."""
    finals = trainings.finals
    seen_F = np.array([rows[0].foreseen for rows in finals.values()], dtype=float)
    nats_F = np.array([np.mean([row.nats for row in rows]) for rows in finals.values()])
    known_F = np.isfinite(nats_F)
    seen_F, nats_F = seen_F[known_F], nats_F[known_F]
    x_F, y_F = seen_F - seen_F.mean(), nats_F - nats_F.mean()
    axes.axline((0.0, 0.0), slope=1.0, color="#cccccc", linewidth=1.0)
    axes.plot(x_F, y_F, "o", color=_FULL, markersize=6.5)
    axes.plot(x_F[:1], y_F[:1], "o", markersize=11, markerfacecolor="none",
              markeredgecolor=SEARCHED)  # fmt: skip
    reach = max(float(np.abs([x_F, y_F]).max()), 1e-3) * 1.35
    axes.set_xlim(-reach, reach)
    axes.set_ylim(-reach, reach)
    _title(axes, "the finals, less their mean", "foreseen by the probes, nats", "trained, nats")
    axes.xaxis.set_major_locator(MaxNLocator(5))
    names = [layout.replace(" ", "") for layout in np.array([*finals])[known_F]]
    name_points(axes, names, x_F, y_F)


def _front(axes: Axes, trainings: Trainings) -> None:
    flops_N = np.array([row.flops for row in trainings.front])
    nats_N = np.array([row.expected for row in trainings.front])
    sd_N = np.array([row.sd for row in trainings.front])
    steps_N2 = stairs(flops_N, nats_N)
    axes.plot(*steps_N2.T, color=SEARCHED, linewidth=1.2)
    expected = "expected (1 sd beside the answer)" if trainings.probed else "trained (1 sd)"
    axes.errorbar(flops_N, nats_N, yerr=sd_N, fmt="o", color=SEARCHED, markersize=5,
                  elinewidth=1, label=expected)  # fmt: skip
    finals = [
        rows for rows in trainings.finals.values() if all(math.isfinite(row.nats) for row in rows)
    ]
    x_F = np.array([rows[0].flops for rows in finals])
    y_F = np.array([np.mean([row.nats for row in rows]) for rows in finals])
    axes.plot(x_F, y_F, "D", color=_FULL, markersize=6, label="trained in full")
    both_x, both_y = np.concatenate([flops_N, x_F]), np.concatenate([nats_N, y_F])
    space = room(float(both_x.min()), float(both_x.max()), 0.12)
    axes.set_xlim(float(both_x.min()) - space, float(both_x.max()) + space)
    title = "no cheaper one is expected to beat these" if trainings.probed else "nats and FLOPs"
    _title(axes, title, "forward FLOPs per token",
           "nats per token, full length")  # fmt: skip
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))
    axes.legend(loc="best")
    least = float(both_y.min())
    axes.set_ylim(least - 0.1 * (float(both_y.max()) - least) - 1e-3, None)


def trainings_section(run_folder: Path) -> html.Section | None:
    """What was trained for the chosen layout: figure and table of the finals; None of nothing."""
    trainings = read_trainings(run_folder)
    if trainings is None:
        return None
    columns = [("layout", ""), ("FLOPs", "per token"), ("nats", "trained, mean"),
               ("expected", "by all trainings"), ("trainings", "full length")]  # fmt: skip
    rows = [
        (
            not place,
            [layout, compact(of[0].flops), f"{np.mean([row.nats for row in of]):.4f}",
             f"{of[0].expected:.4f}", str(len(of))],
        )
        for place, (layout, of) in enumerate(trainings.finals.items())
    ]  # fmt: skip
    halves = sum(row.half for row in trainings.rows)
    note = (
        f"{halves} trainings of half length said what to try; the finals, with the same fresh "
        "seeds for all, decided. The front is what the regression expects of layouts that were "
        "mostly never trained."
        if trainings.probed
        else "All that rules, and a search where there was one, propose was trained with one seed, "
        "the best of it with the others too; these decided."
    )
    alt = f"Charts of what was trained; best of the finals: {next(iter(trainings.finals))}"
    caption = "What was trained for the layout"
    body = html.render(
        "exhibit.html.j2",
        pictures=[html.Picture(png(trainings_figure(trainings)), caption, alt)],
        table=html.Table(columns, rows, left=1, label="the finals"),
        notes=[note],
    )
    return html.Section("probes", "What was trained for it", body)
