"""The figure of a rank harness: scores against training alone, and the taus side by side."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from report.plotting import FAINT, INK, SEARCHED, house_style, make_figure, margins, plain, png
from report.run_files import read_json
from utils.files import write_whole

_SUPERNET, _OTHER = SEARCHED, "#0072b2"


def write_rank_figure(folder: Path) -> Path:
    """Draw FOLDER/rank.json as FOLDER/rank.png."""
    figure = rank_figure(read_json(folder / "rank.json"))
    return write_whole(folder / "rank.png", png(figure))


def rank_figure(content: Mapping[str, Any]) -> Figure:
    """One row for each group of layouts: a scatter, and the taus with their intervals."""
    groups = content["groups"]
    with house_style():
        figure = make_figure(8.6, 0.5 + 3.1 * max(len(groups), 1))
        grid = figure.subplots(max(len(groups), 1), 2, squeeze=False)
        margins(figure, left=0.75, right=0.2, top=0.35, bottom=0.5)
        figure.subplots_adjust(wspace=0.6, hspace=0.45)
        for (scatter, taus), (name, group) in zip(grid, groups.items(), strict=False):
            rows = [row for row in content["rows"] if row[name]]
            _scatter(scatter, rows, f"{group['n']} layouts, {group['title']}")
            _taus(taus, group)
    return figure


def _scatter(axes: Axes, rows: Sequence[Mapping[str, Any]], title: str) -> None:
    supernet = [row["supernet_nats"] for row in rows]
    alone = [row["alone_nats"] for row in rows]
    error = [row["supernet_error"] for row in rows]
    axes.errorbar(
        supernet, alone, xerr=error, fmt="o", color=_SUPERNET, ecolor=FAINT, markersize=4,
        elinewidth=0.8,
    )  # fmt: skip
    axes.set_title(title, loc="left")
    axes.set_xlabel("validation nats by the SuperNet's weights")
    axes.set_ylabel("test nats after training alone")
    axes.grid()


def _taus(axes: Axes, group: Mapping[str, Any]) -> None:
    bars = [("SuperNet", group["supernet"], _SUPERNET)]
    for name, tau in group["trivial"].items():
        bars.append((f"{group['direction'][name]} {name}", tau, _OTHER))
    if group["agreement"] is not None:
        bars.append(("agreement of two trainings", group["agreement"], INK))
    shown = [(name, tau, colour) for name, tau, colour in bars if tau["tau"] is not None]
    for place, (_, tau, colour) in enumerate(shown):
        axes.plot([tau["low"], tau["high"]], [place, place], color=colour, linewidth=1.6)
        axes.plot([tau["tau"]], [place], "o", color=colour, markersize=5)
    axes.axvline(0, color=FAINT, linestyle=":", linewidth=0.9)
    if (ceiling := group["ceiling"]) is not None:
        axes.axvline(ceiling, color=INK, linestyle="--", linewidth=0.9)
        where: dict[str, Any] = {"ha": "right", "va": "center"}
        axes.text(ceiling, len(shown) - 0.2, "a perfect predictor ", fontsize=7, **where)
    axes.set_yticks(range(len(shown)), [plain(name) for name, _, _ in shown])
    axes.set_ylim(len(shown) + 0.2, -0.5)
    axes.set_xlim(-1.05, 1.05)
    axes.set_title("Kendall's tau with training alone, 95% interval", loc="left")
    axes.grid(axis="x")
