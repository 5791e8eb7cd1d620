"""The front of a run: what layouts cost and how the SuperNet scores them, rules marked."""

from collections.abc import Sequence
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

FILE, TABLE, SUMMARY = "pareto.png", "pareto.csv", "pareto.json"
_RULE, _BEATEN = "#0072b2", "#999999"
_MOST_NAMES = 12
# So many times as far from the best as the front's median the axis reaches.
_MOST_TYPICAL = 4.0


@dataclass(frozen=True)
class Row:
    """A layout of `pareto.csv`."""

    rule: str
    front: bool
    layout: str
    cost: float
    times_reference: float
    nats_per_token: float


@dataclass(frozen=True)
class FrontTable:
    """The rows, the cheapest first, what the cost is, and the layout whose cost is 1x."""

    rows: tuple[Row, ...]
    cost: str
    unit: str
    reference: str

    @property
    def cost_label(self) -> str:
        """The cost with its unit."""
        return f"{self.cost} ({self.unit})" if self.unit else self.cost


def read_front(run_folder: Path) -> FrontTable | None:
    """The front that derive.py wrote; None where there is none.

    Raises:
        ValueError: one of its files is broken; the message names it.
    """
    table, summary = run_folder / TABLE, run_folder / SUMMARY
    if not (table.exists() and summary.exists()):
        return None
    known = read_json(summary)
    with reading(table):
        rows = tuple(
            Row(
                row["rule"],
                row["front"] == "1",
                row["layout"],
                *(float(row[name]) for name in ("cost", "times_reference", "nats_per_token")),
            )
            for row in read_table(table)
        )
    with reading(summary):
        return FrontTable(rows, known["cost"], known["unit"], known["reference"])


def front_sentence(run_folder: Path) -> str:
    """How many layouts are on the front and what they cost; nothing where there is none."""
    table = read_front(run_folder)
    times = [row.times_reference for row in table.rows if row.front] if table else []
    if table is None or not times:
        return ""
    return (
        f"The front holds {len(times)} of {len(table.rows)} scored layouts, at {min(times):.2f}x "
        f"to {max(times):.2f}x of {table.reference}'s {table.cost}. None is trained for it yet."
    )


def write_pareto_figure(run_folder: Path) -> Path:
    """Draw RUN/pareto.png from the files of the front."""
    table = read_front(run_folder)
    assert table is not None, run_folder
    return write_whole(run_folder / FILE, png(pareto_figure(table)))


def pareto_figure(table: FrontTable) -> Figure:
    """Every layout's score against its cost; the front as stairs, the rules named."""
    front = [row for row in table.rows if row.front]
    rules = [row for row in table.rows if row.rule]
    beaten = [row for row in table.rows if not row.front and not row.rule]
    with house_style():
        figure = make_figure(7.6, 4.2)
        axes = figure.subplots()
        margins(figure, left=0.85, right=0.25, top=0.45, bottom=0.6)
        above = _limit(axes, table.rows, front)
        for rows, mark, colour, size, words in (
            (beaten, "o", _BEATEN, 4.0, "beaten"),
            (front, "o", SEARCHED, 6.5, f"beaten by none of {len(table.rows)}"),
            (rules, "D", _RULE, 6.5, "rules"),
        ):
            if rows:
                axes.plot(*_places(rows), mark, color=colour, markersize=size, label=words,
                          markeredgecolor="white", markeredgewidth=0.6, zorder=3)  # fmt: skip
        steps_N2 = stairs(*_places(front))
        axes.plot(*steps_N2.T, color=SEARCHED, linewidth=1.2)
        _finish(axes, table, above)
        inside = [row for row in [*rules, *front] if row.nats_per_token <= axes.get_ylim()[1]]
        named = list({row.layout: row for row in inside}.values())[:_MOST_NAMES]
        names = [row.rule or row.layout.replace(" ", "") for row in named]
        others_N2 = np.concatenate([np.column_stack(_places(beaten)), steps_N2])
        name_points(axes, names, *_places(named), others_N2)
    return figure


def _places(rows: Sequence[Row]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([row.cost for row in rows]), np.array([row.nats_per_token for row in rows])


def _limit(axes: Axes, rows: Sequence[Row], front: Sequence[Row]) -> int:
    """Give the axes room for names; layouts that predict next to nothing lie above, so many."""
    x_N, y_N = _places(rows)
    least = float(y_N.min())
    typical = float(np.median([row.nats_per_token for row in front]))
    one_x = [row.nats_per_token for row in rows if row.times_reference == 1.0]
    far = least + _MOST_TYPICAL * max(typical - least, 1e-3)
    # The reference is always to be seen: what lies left of it is what is saved.
    top = min(float(y_N.max()), max(far, *one_x) if one_x else far)
    space = room(float(x_N.min()), float(x_N.max()), 0.12)
    axes.set_xlim(float(x_N.min()) - space, float(x_N.max()) + space)
    space = room(least, top, 0.15)
    axes.set_ylim(least - space, top + space)
    return int((y_N > top + space).sum())


def _finish(axes: Axes, table: FrontTable, above: int) -> None:
    axes.set_xlabel(table.cost_label)
    axes.set_ylabel("validation nats per token, SuperNet's weights")
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))
    axes.yaxis.set_major_locator(MaxNLocator(6))
    axes.ticklabel_format(axis="y", useOffset=False)
    axes.grid()
    more = f"; {above} layouts are above" if above > 1 else "; 1 layout is above" if above else ""
    axes.set_title(f"lower and further left is better{more}", loc="left", color="#666666")
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, borderaxespad=0.2)


def pareto_section(run_folder: Path) -> html.Section | None:
    """The front: figure and table; None where there is none."""
    table = read_front(run_folder)
    if table is None:
        return None
    columns = [("layout", ""), ("", ""), (table.cost, table.unit),
               ("relative", f"x {table.reference}"), ("nats", "per token")]  # fmt: skip
    rows = [
        (
            row.front,
            [row.layout, row.rule, f"{row.cost:.4g}", f"{row.times_reference:.3f}",
             f"{row.nats_per_token:.4f}"],
        )
        for row in table.rows
        if row.front or row.rule
    ]  # fmt: skip
    note = (
        f"Of {len(table.rows)} layouts that were scored for it, and no others. Scores are those of "
        "the SuperNet's weights on validation text. What a training gives is another matter: "
        "compare.py --pareto trains the front."
    )
    alt = f"Scatter plot of nats against {table.cost_label} of {len(table.rows)} layouts"
    caption = "What layouts cost and how they score"
    body = html.render(
        "exhibit.html.j2",
        pictures=[html.Picture(png(pareto_figure(table)), caption, alt)],
        table=html.Table(columns, rows, left=2, label="the front"),
        notes=[note],
    )
    return html.Section("front", "The front", body)
