"""The page's sections about searches: pi step by step, and what went with it."""

from collections.abc import Mapping
from pathlib import Path

from report import html
from report.blocks import BLOCKS_WORDS
from report.commands import seed_of
from report.cost import COST_PATH
from report.run_files import (
    CAVEATS,
    Trajectory,
    read_caveats,
    read_joint_caveats,
    seed_folders,
)
from report.search_figures import (
    SEARCH_FIGURES,
    SPREAD_FIGURES,
    comparable_searches,
    write_search_figures,
    write_spread_figures,
)


def search_sections(
    run_folder: Path, searches: Mapping[Path, Trajectory | None]
) -> list[html.Section]:
    """Several searches together where they are comparable, then each by its seed."""
    sections = [_several(run_folder), *(_search(*item) for item in searches.items())]
    return [section for section in sections if section is not None]


def search_caveats(run_folder: Path) -> list[str]:
    """Caveats of the run's searches, one and together; the same words once."""
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
    """Figures of several searches together."""
    if not (written := write_spread_figures(run_folder)):
        return None
    seeds = [seed_of(folder) for folder in comparable_searches(run_folder)]
    named = ", ".join(map(str, seeds))
    alt = f"Line charts over the steps of the searches of seeds {named}, with bands"
    body = html.render(
        "exhibit.html.j2",
        caveats=read_joint_caveats(run_folder / "search" / CAVEATS, seeds),
        pictures=[
            html.Picture(path.read_bytes(), SPREAD_FIGURES[path.name], alt) for path in written
        ],
    )
    return html.Section("searches", f"Searches of seeds {named} together", body)


def _search(folder: Path, trajectory: Trajectory | None) -> html.Section | None:
    """The figures of one search seed."""
    drawn = {path.name: path for path in _current_figures(folder)}
    if not drawn:
        return None
    body = html.render(
        "search.html.j2",
        caveats=_own_caveats(folder),
        sources={
            name: html.source_of(path.read_bytes(), path.suffix.removeprefix("."))
            for name, path in drawn.items()
        },
        likeliest=_likeliest(trajectory) if trajectory else "",
        block_numbers=BLOCKS_WORDS,
    )
    return html.Section(folder.name, f"Search, {folder.name.replace('-', ' ')}", body)


def _likeliest(trajectory: Trajectory) -> str:
    """Each slot's likeliest candidate at the end, for those who do not see the heat map."""
    pi_LC = trajectory.pi_NLC[-1]
    best = [
        f"slot {slot} {trajectory.labels[int(pi_C.argmax())]} {pi_C.max():.2f}"
        for slot, pi_C in enumerate(pi_LC)
    ]
    return ", ".join(best)


def _current_figures(folder: Path) -> list[Path]:
    """The seed's figures, drawn anew where they are older than what they show."""
    sources = [folder / name for name in ("pi.npz", "metrics.jsonl", COST_PATH)]
    newest = max((path.stat().st_mtime_ns for path in sources if path.exists()), default=0)
    # Drawn behind all others.
    last = folder / "figures" / SEARCH_FIGURES[-1]
    if not last.exists() or last.stat().st_mtime_ns <= newest:
        write_search_figures(folder)
    figures = (folder / "figures" / name for name in SEARCH_FIGURES)
    return [path for path in figures if path.exists()]
