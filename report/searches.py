"""The page's sections about searches: pi step by step, and what went with it."""

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from report import html
from report.alt import alt_of
from report.blocks import BLOCKS_FIGURE
from report.cost import COST_FIGURE, COST_PATH, has_costs
from report.run_files import (
    CAVEATS,
    Trajectory,
    read_caveats,
    read_joint_caveats,
    read_metrics,
    seed_folders,
)
from report.search_figures import (
    SEARCH_FIGURES,
    SPREAD_FIGURES,
    comparable_searches,
    write_search_figures,
    write_spread_figures,
)
from report.slider import heat_map_with_slider

_MOVING = "pi.gif"
# Title of a part, and its figures; the slider shows what pi_final.png does.
_PARTS = {
    "Trajectory": (_MOVING, "pi_lines.png", "pi_over_time.png"),
    "tau, entropy and margin": ("schedule.png",),
    "Losses": ("curves.png",),
    "Cost": (COST_FIGURE,),
    "What blocks say of themselves": (BLOCKS_FIGURE,),
}


def search_sections(
    run_folder: Path, searches: Mapping[Path, Trajectory | None]
) -> list[html.Section]:
    """Several searches together where they are comparable, then each by its seed."""
    sections = [_several(run_folder), *(_search(*item) for item in searches.items())]
    return [section for section in sections if section is not None]


def seed_of(folder: Path) -> int:
    """The seed in the name of a folder."""
    return int(folder.name.removeprefix("seed-"))


def search_caveats(run_folder: Path) -> list[str]:
    """What is to be told of the run's searches, one and together; the same words once."""
    folders = seed_folders(run_folder / "search")
    together = [seed_of(folder) for folder in comparable_searches(run_folder)]
    lines = [line for folder in folders for line in _own_caveats(folder)]
    if len(together) > 1:
        lines += read_joint_caveats(run_folder / "search" / CAVEATS, together)
    return list(dict.fromkeys(lines))


def _own_caveats(folder: Path) -> list[str]:
    alone = read_joint_caveats(folder.parent / CAVEATS, [seed_of(folder)])
    return [*read_caveats(folder / CAVEATS), *alone]


def _several(run_folder: Path) -> html.Section | None:
    """How far several searches differ."""
    if not (written := write_spread_figures(run_folder)):
        return None
    seeds = [seed_of(folder) for folder in comparable_searches(run_folder)]
    named = ", ".join(map(str, seeds))
    figures = [
        html.image(path.read_bytes(), SPREAD_FIGURES[path.name],
                   f"Line charts over the steps of the searches of seeds {named}, with bands: "
                   f"{SPREAD_FIGURES[path.name]}")
        for path in written
    ]  # fmt: skip
    caveats = html.caveats(read_joint_caveats(run_folder / "search" / CAVEATS, seeds))
    title = f"Searches of seeds {named} together"
    return html.Section("searches", title, caveats + "".join(figures))


def _search(folder: Path, trajectory: Trajectory | None) -> html.Section | None:
    """The figures of one search seed."""
    figures = {path.name: path for path in _current_figures(folder)}
    if not figures:
        return None
    parts = [html.caveats(_own_caveats(folder))]
    path = folder / "metrics.jsonl"
    metrics = read_metrics(path) if path.exists() else None
    for title, names in _PARTS.items():
        shown = [figures[name] for name in names if name in figures]
        if shown:
            parts.append(html.subtitle(title))
        drawn = [_figure(path, trajectory, metrics) for path in shown]
        if _MOVING in names and trajectory is not None:
            beside = drawn[:1] if _MOVING in figures else []
            pair = "".join([heat_map_with_slider(trajectory), *beside])
            drawn = [f'<div class="pair">{pair}</div>', *drawn[len(beside) :]]
        parts += drawn
    key = folder.name
    return html.Section(key, f"Search, {key.replace('-', ' ')}", "".join(parts))


def _figure(path: Path, trajectory: Trajectory | None, metrics: pd.DataFrame | None) -> str:
    alt, caption = alt_of(path.name, trajectory, metrics), SEARCH_FIGURES[path.name]
    if path.name != _MOVING:
        return html.image(path.read_bytes(), caption, alt)
    # What moves without end must let itself be put away.
    picture = html.image(path.read_bytes(), caption, alt, kind="gif")
    return f'<details class="moving" open><summary>Animation</summary>{picture}</details>'


def _current_figures(folder: Path) -> list[Path]:
    """The seed's figures, drawn anew where they are older than what they show."""
    sources = [folder / name for name in ("pi.npz", "metrics.jsonl", COST_PATH)]
    newest = max((path.stat().st_mtime_ns for path in sources if path.exists()), default=0)
    every = [folder / "figures" / name for name in SEARCH_FIGURES]
    absent = set() if has_costs(folder) else {COST_FIGURE}
    if not (folder / "figures" / BLOCKS_FIGURE).exists():
        # Blocks of few kinds say something of themselves; the figure is drawn before others.
        absent.add(BLOCKS_FIGURE)
    drawn = [path for path in every if path.name not in absent]
    if all(path.exists() and path.stat().st_mtime_ns > newest for path in drawn):
        return drawn
    written = set(write_search_figures(folder))
    return [path for path in every if path in written]
