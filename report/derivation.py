"""What a derivation weighed: a front of scored layouts, and trainings; their figures and sections.

F finals
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from report import html
from report.plotting import SEARCHED, cost_axes, framed, name_points, png, room, stairs
from report.run_files import read_json, reading
from utils.files import write_whole
from utils.text import compact

_BLUE, _GREY, _TITLE = "#0072b2", "#999999", "#666666"
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

    @property
    def cost_label(self) -> str:
        """The cost with its unit."""
        return f"{self.cost} ({self.unit})" if self.unit else self.cost


def read_front(run_folder: Path) -> FrontTable | None:
    """The front that derive.py wrote; None where there is none.

    Raises:
        ValueError: one of its files is broken; the message names it.
    """
    table, summary = run_folder / "pareto.csv", run_folder / "pareto.json"
    if not (table.exists() and summary.exists()):
        return None
    known, rows = read_json(summary), _read_table(table)
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
    """Every layout's score against its cost; the front as stairs, the rules named."""
    rows, front = table.rows, table.front
    rules = rows[rows["rule"] != ""]
    beaten = rows.drop([*front.index, *rules.index], errors="ignore")
    with framed(7.6, 4.2, left=0.85, right=0.25, bottom=0.6) as (figure, grid):
        axes: Axes = grid[0, 0]
        above = _limit(axes, rows, front)
        for some, mark, colour, size, words in (
            (beaten, "o", _GREY, 4.0, "beaten"),
            (front, "o", SEARCHED, 6.5, f"beaten by none of {len(rows)}"),
            (rules, "D", _BLUE, 6.5, "rules"),
        ):
            if len(some):
                axes.plot(*_places(some), mark, color=colour, markersize=size, label=words,
                          markeredgecolor="white", markeredgewidth=0.6, zorder=3)  # fmt: skip
        steps_N2 = stairs(*_places(front))
        axes.plot(*steps_N2.T, color=SEARCHED, linewidth=1.2)
        cost_axes(axes, table.cost_label, "validation nats per token, SuperNet's weights")
        layouts = "layout is" if above == 1 else "layouts are"
        more = f"; {above} {layouts} above" if above else ""
        axes.set_title(f"lower and further left is better{more}", loc="left", color=_TITLE)
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, borderaxespad=0.2)
        inside = pd.concat([rules, front])
        inside = inside[inside["nats_per_token"] <= axes.get_ylim()[1]]
        named = inside.drop_duplicates("layout")[:_MOST_NAMES]
        tight = named["layout"].str.replace(" ", "")
        names = named["rule"].where(named["rule"] != "", tight).tolist()
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


def front_section(run_folder: Path) -> html.Section | None:
    """The front: figure and table; None where there is none."""
    table = read_front(run_folder)
    if table is None:
        return None
    head = [("layout", ""), ("", ""), (table.cost, table.unit),
            ("relative", f"x {table.reference}"), ("nats", "per token")]  # fmt: skip
    rows = [
        (bool(row.front == 1), [str(row.layout), str(row.rule), f"{row.cost:.4g}",
                                f"{row.times_reference:.3f}", f"{row.nats_per_token:.4f}"])
        for row in table.rows.itertuples()
        if row.front == 1 or row.rule
    ]  # fmt: skip
    note = (
        f"Of {len(table.rows)} layouts that were scored for it, and no others. Scores are those of "
        "the SuperNet's weights on validation text. What a training gives is another matter: "
        "compare.py --pareto trains the front."
    )
    alt = f"Scatter plot of nats against {table.cost_label} of {len(table.rows)} layouts"
    figure = html.Picture(png(front_figure(table)), "What layouts cost and how they score", alt)
    shown = html.Table(head, rows, left=2, label="the front")
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
    return Trainings(_read_table(path), _read_table(front))


def write_trainings_figure(run_folder: Path) -> Path | None:
    """Draw RUN/trainings.png; None where nothing was trained for the chosen layout."""
    trainings = read_trainings(run_folder)
    if trainings is None:
        return None
    return write_whole(run_folder / "trainings.png", png(trainings_figure(trainings)))


def trainings_figure(trainings: Trainings) -> Figure:
    """In order what was tried; the finals as foreseen and as trained; nats against FLOPs."""
    panels = [_tried, _foreseen, _front] if trainings.probed else [_tried, _front]
    with framed(12.5, 4.2, 1, len(panels), left=0.8, bottom=0.6) as (figure, grid):
        figure.subplots_adjust(wspace=0.32)
        for draw, axes in zip(panels, grid[0], strict=True):
            draw(axes, trainings)
    return figure


def _tried(axes: Axes, trainings: Trainings) -> None:
    rows = trainings.rows.assign(place=range(1, len(trainings.rows) + 1))
    rows = rows[np.isfinite(rows["valid_nats"])]
    own = rows[rows["layout"] == trainings.finals.index[0]]
    for some, colour, label in (
        (rows[rows["length"] == "half"], _GREY, "half length"),
        (rows[rows["length"] == "full"], _BLUE, "full length"),
    ):
        if len(some):
            at = some["place"], some["valid_nats"]
            axes.plot(*at, "o", color=colour, markersize=5.5, label=label)
    _ring(axes, own["place"], own["valid_nats"], label="the answer")
    axes.set_title("what was trained, in order", loc="left", color=_TITLE)
    cost_axes(axes, "training", "validation nats per token", "{:.0f}".format)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.legend(loc="best")


def _ring(axes: Axes, x: Sequence[float], y: Sequence[float], label: str | None = None) -> None:
    shape: dict[str, Any] = {
        "markersize": 10,
        "markerfacecolor": "none",
        "markeredgecolor": SEARCHED,
    }
    axes.plot(x, y, "o", label=label, **shape)


def _foreseen(axes: Axes, trainings: Trainings) -> None:
    """As differences from the finals' mean: what half length gets wrong of all does not count."""
    finals = trainings.finals[np.isfinite(trainings.finals["nats"])]
    x_F, y_F = ((finals[key] - finals[key].mean()).to_numpy(float) for key in ("foreseen", "nats"))
    axes.axline((0.0, 0.0), slope=1.0, color="#cccccc", linewidth=1.0)
    axes.plot(x_F, y_F, "o", color=_BLUE, markersize=6.5)
    _ring(axes, x_F[:1], y_F[:1])
    reach = max(float(np.abs([x_F, y_F]).max()), 1e-3) * 1.35
    axes.set_xlim(-reach, reach)
    axes.set_ylim(-reach, reach)
    axes.set_title("the finals, less their mean", loc="left", color=_TITLE)
    cost_axes(axes, "foreseen by the probes, nats", "trained, nats", "{:g}".format)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    name_points(axes, [str(layout).replace(" ", "") for layout in finals.index], x_F, y_F)


def _front(axes: Axes, trainings: Trainings) -> None:
    flops_N, nats_N, sd_N = (
        trainings.front[key].to_numpy(float)
        for key in ("flops_per_token", "expected_nats", "expected_sd")
    )
    axes.plot(*stairs(flops_N, nats_N).T, color=SEARCHED, linewidth=1.2)
    expected = "expected (1 sd beside the answer)" if trainings.probed else "trained (1 sd)"
    axes.errorbar(flops_N, nats_N, yerr=sd_N, fmt="o", color=SEARCHED, markersize=5,
                  elinewidth=1, label=expected)  # fmt: skip
    finals = trainings.finals[np.isfinite(trainings.finals["nats"])]
    x_F, y_F = finals["flops"].to_numpy(float), finals["nats"].to_numpy(float)
    axes.plot(x_F, y_F, "D", color=_BLUE, markersize=6, label="trained in full")
    both_x, both_y = np.concatenate([flops_N, x_F]), np.concatenate([nats_N, y_F])
    space = room(float(both_x.min()), float(both_x.max()), 0.12)
    axes.set_xlim(float(both_x.min()) - space, float(both_x.max()) + space)
    title = "no cheaper one is expected to beat these" if trainings.probed else "nats and FLOPs"
    axes.set_title(title, loc="left", color=_TITLE)
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
    head = [("layout", ""), ("FLOPs", "per token"), ("nats", "trained, mean"),
            ("expected", "by all trainings"), ("trainings", "full length")]  # fmt: skip
    finals = trainings.finals
    rows = [
        (not place, [str(layout), compact(row["flops"]), f"{row['nats']:.4f}",
                     f"{row['expected']:.4f}", str(row["trainings"])])
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
    figure = png(trainings_figure(trainings))
    picture = html.Picture(figure, "What was trained for the layout", alt)
    shown = html.Table(head, rows, left=1, label="the finals")
    return html.exhibit(
        "probes", "What was trained for it", shown, notes=[note], pictures=[picture]
    )
