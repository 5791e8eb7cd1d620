"""What a ranking says: rank.csv, rank.json, the lines for the screen, and the figure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.layoutbench.rank import Ranked, rankings
from benchmarks.ranking import Ranking
from report.plotting import FAINT, HUES, INK, framed, plain, png
from utils.files import csv_of, write_whole

TITLES = {"equal": "within 3% of equal FLOPs", "free": "free"}


def greeting(ranked: Ranked) -> str:
    """How many layouts are trained, and of what cost."""
    sample = ranked.sample
    counts = {name: len(group) for name, group in sample.groups.items()}
    parts = [f"{counts['free']} free"]
    if sample.target_flops is not None:
        mflop = f"{sample.target_flops / 1e6:.3f} MFLOP per token ({sample.target})"
        parts.insert(0, f"{counts['equal']} within 3% of {mflop}")
    return (
        f"{len(sample.layouts)} layouts x {len(ranked.seeds)} training seeds x "
        f"{ranked.training_steps} steps: {', '.join(parts)}"
    )


def show(ranked: Ranked) -> None:
    """Measure latencies; write and print the table and what may be said."""
    measured = ranked.latencies()
    rows = ranked.table(measured)
    by_group = rankings(rows, ranked.seeds)
    content = {
        "searches": list(ranked.searches),
        "seeds": list(ranked.seeds),
        "steps": ranked.training_steps,
        "target_flops": ranked.sample.target_flops,
        "tokens": next(iter(ranked.scores.values())).tokens,
        "latency_note": measured.note,
        "latency_key": measured.key,
        "groups": {
            name: {
                **asdict(ranking),
                "visible": ranking.visible,
                "verdict": ranking.verdict,
                "title": TITLES[name],
            }
            for name, ranking in by_group.items()
        },
        "rows": rows,
    }
    folder = ranked.folder
    write_whole(folder / "rank.csv", csv_of(rows, list(rows[0])))
    write_whole(folder / "rank.json", json.dumps(content, indent=1) + "\n")
    write_whole(folder / "rank.png", png(rank_figure(json.loads(json.dumps(content)))))
    for name, ranking in by_group.items():
        print(f"\n{as_text(TITLES[name], ranking)}")
    print(f"\n{measured.note}\ntable: {folder / 'rank.csv'}\nfigure: {folder / 'rank.png'}")


def as_text(title: str, ranking: Ranking) -> str:
    """Taus with their 95% intervals, and the verdict."""
    taus = {"SuperNet": str(ranking.supernet)}
    for name, tau in ranking.trivial.items():
        taus[name if tau.tau is None else f"{ranking.direction[name]} {name}"] = str(tau)
    agreement, ceiling, lacking = ranking.agreement, ranking.ceiling, "needs two training seeds"
    taus["agreement of two trainings"] = lacking if agreement is None else str(agreement)
    taus["a perfect predictor"] = lacking if ceiling is None else f"{ceiling:+.3f}"
    width = max(map(len, taus))
    lines = [
        f"Kendall's tau with training alone, {ranking.n} layouts, {title} (95% interval)",
        *(f"  {name:<{width}}  {words}" for name, words in taus.items()),
        ranking.verdict,
    ]
    return "\n".join(lines)


def rank_figure(content: Mapping[str, Any]) -> Figure:
    """One row for each group of layouts: a scatter, and the taus with their intervals."""
    groups = content["groups"]
    lines = max(len(groups), 1)
    with framed(8.6, 0.5 + 3.1 * lines, lines, 2, top=0.35, bottom=0.5) as (figure, grid):
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
        supernet, alone, xerr=error, fmt="o", color=HUES["chosen"], ecolor=FAINT, markersize=4,
        elinewidth=0.8,
    )  # fmt: skip
    axes.set_title(title, loc="left")
    axes.set_xlabel("validation nats by the SuperNet's weights")
    axes.set_ylabel("test nats after training alone")
    axes.grid()


def _taus(axes: Axes, group: Mapping[str, Any]) -> None:
    bars = [("SuperNet", group["supernet"], HUES["chosen"])]
    for name, tau in group["trivial"].items():
        bars.append((f"{group['direction'][name]} {name}", tau, HUES["baseline"]))
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
