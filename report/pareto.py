"""The front of a run: what layouts cost and how the SuperNet scores them, rules marked."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

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

FILE, TABLE, SUMMARY = "pareto.png", "pareto.csv", "pareto.json"
_RULE, _BEATEN = "#0072b2", "#999999"
_TEXTS, _NUMBERS = ("rule", "layout"), ("front", "cost", "times_reference", "nats_per_token")
_MOST_NAMES = 12
# So many times as far from the best as the front's median the axis reaches.
_MOST_TYPICAL = 4.0


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
        types = {**dict.fromkeys(_TEXTS, str), **dict.fromkeys(_NUMBERS, float)}
        rows = pd.read_csv(table, dtype=types, keep_default_na=False)[[*_TEXTS, *_NUMBERS]]
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


def write_pareto_figure(run_folder: Path) -> Path:
    """Draw RUN/pareto.png from the files of the front."""
    table = read_front(run_folder)
    assert table is not None, run_folder
    return write_whole(run_folder / FILE, png(pareto_figure(table)))


def pareto_figure(table: FrontTable) -> Figure:
    """Every layout's score against its cost; the front as stairs, the rules named."""
    rows, front = table.rows, table.front
    rules = rows[rows["rule"] != ""]
    beaten = rows.drop([*front.index, *rules.index], errors="ignore")
    with house_style():
        figure = make_figure(7.6, 4.2)
        axes = figure.subplots()
        margins(figure, left=0.85, right=0.25, top=0.45, bottom=0.6)
        above = _limit(axes, rows, front)
        for some, mark, colour, size, words in (
            (beaten, "o", _BEATEN, 4.0, "beaten"),
            (front, "o", SEARCHED, 6.5, f"beaten by none of {len(rows)}"),
            (rules, "D", _RULE, 6.5, "rules"),
        ):
            if len(some):
                axes.plot(*_places(some), mark, color=colour, markersize=size, label=words,
                          markeredgecolor="white", markeredgewidth=0.6, zorder=3)  # fmt: skip
        steps_N2 = stairs(*_places(front))
        axes.plot(*steps_N2.T, color=SEARCHED, linewidth=1.2)
        _finish(axes, table, above)
        inside = pd.concat([rules, front])
        inside = inside[inside["nats_per_token"] <= axes.get_ylim()[1]]
        named = inside.drop_duplicates("layout")[:_MOST_NAMES]
        layouts = named["layout"].str.replace(" ", "")
        names = named["rule"].where(named["rule"] != "", layouts).tolist()
        others_N2 = np.concatenate([np.column_stack(_places(beaten)), steps_N2])
        name_points(axes, names, *_places(named), others_N2)
    return figure


def _places(rows: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    return rows["cost"].to_numpy(float), rows["nats_per_token"].to_numpy(float)


def _limit(axes: Axes, rows: pd.DataFrame, front: pd.DataFrame) -> int:
    """Give the axes room for names; layouts that predict next to nothing lie above, so many."""
    x_N, y_N = _places(rows)
    least, typical = float(y_N.min()), float(front["nats_per_token"].median())
    one_x = rows["nats_per_token"][rows["times_reference"] == 1.0]
    far = least + _MOST_TYPICAL * max(typical - least, 1e-3)
    # The reference is always to be seen: what lies left of it is what is saved.
    top = min(float(y_N.max()), max([far, *one_x]))
    space = room(float(x_N.min()), float(x_N.max()), 0.12)
    axes.set_xlim(float(x_N.min()) - space, float(x_N.max()) + space)
    space = room(least, top, 0.15)
    axes.set_ylim(least - space, top + space)
    return int((y_N > top + space).sum())


def _finish(axes: Axes, table: FrontTable, above: int) -> None:
    cost_axes(axes, table.cost_label, "validation nats per token, SuperNet's weights")
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
    shown = table.rows[(table.rows["front"] == 1) | (table.rows["rule"] != "")]
    rows = [
        (
            bool(row.front == 1),
            [str(row.layout), str(row.rule), f"{row.cost:.4g}", f"{row.times_reference:.3f}",
             f"{row.nats_per_token:.4f}"],
        )
        for row in shown.itertuples()
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
