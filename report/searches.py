"""Searches of a run: their figures, written beside what they show, and the page's sections."""

from collections.abc import Callable, Mapping
from pathlib import Path

from matplotlib.figure import Figure

from report import html
from report.curves import COST_PATH, COSTS, cost_figure, curves, schedule
from report.pi_figures import heat_map, line_plots, write_animation
from report.plotting import png
from report.run_files import (
    Trajectory,
    read_caveats,
    read_joint_caveats,
    read_metrics,
    read_trajectory,
    seed_of,
)
from utils.files import write_whole

_OF_PI: dict[str, Callable[[Trajectory], Figure]] = {
    "pi_final.png": heat_map,
    "pi_lines.png": line_plots,
    "schedule.png": schedule,
}
# The last one is drawn behind all others.
SEARCH_FIGURES = (*_OF_PI, "pi.gif", "cost.png", "curves.png")

# By their folders, as far as they have recorded anything.
Searches = Mapping[Path, Trajectory | None]


def write_search_figures(search_folder: Path) -> list[Path]:
    """Write every figure the files of one search seed allow into its `figures/`."""
    folder = search_folder / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    drawn: dict[str, Figure] = {}
    written = []
    if (search_folder / "pi.npz").exists():
        trajectory = read_trajectory(search_folder / "pi.npz")
        drawn = {name: draw(trajectory) for name, draw in _OF_PI.items()}
        written.append(write_animation(trajectory, folder / "pi.gif"))
        if all((search_folder / name).exists() for name in (COSTS, COST_PATH)):
            drawn["cost.png"] = cost_figure(search_folder, trajectory)
    path = search_folder / "metrics.jsonl"
    if path.exists() and len(metrics := read_metrics(path)):
        drawn["curves.png"] = curves(metrics)
    return [
        *written, *(write_whole(folder / name, png(figure)) for name, figure in drawn.items())
    ]  # fmt: skip


def comparable(searches: Searches) -> dict[Path, Trajectory]:
    """The searches that have recorded as many steps as the longest one."""
    known = {folder: search for folder, search in searches.items() if search is not None}
    shape = max((search.pi_NLC.shape for search in known.values()), default=())
    return {folder: search for folder, search in known.items() if search.pi_NLC.shape == shape}


def search_sections(searches: Searches) -> list[html.Section]:
    """Several searches together where they are comparable, then each by its seed."""
    together = comparable(searches)
    sections = [_several(together)] if len(together) > 1 else []
    for folder in searches:
        if figures := _current_figures(folder):
            joint = read_joint_caveats(together) if [*together] == [folder] else []
            sections.append(_search(folder, figures, [*read_caveats(folder), *joint]))
    return sections


def search_caveats(searches: Searches) -> list[str]:
    """Caveats of the run's searches, one and together; the same words once."""
    lines = [line for folder in searches for line in read_caveats(folder)]
    return list(dict.fromkeys([*lines, *read_joint_caveats(comparable(searches))]))


def _several(searches: Mapping[Path, Trajectory]) -> html.Section:
    """The pi of several searches together, also as `search/figures/pi_seeds.png`."""
    named = ", ".join(str(seed_of(folder)) for folder in searches)
    path = next(iter(searches)).parent / "figures" / "pi_seeds.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    figure = write_whole(path, png(line_plots(*searches.values()))).read_bytes()
    caption = "pi over the steps: the mean over the searches, and the range from lowest to highest."
    alt = f"Line charts over the steps of the searches of seeds {named}, with bands"
    return html.exhibit(
        "searches",
        f"Searches of seeds {named} together",
        caveats=read_joint_caveats(searches),
        pictures=[html.Picture(figure, caption, alt)],
    )


def _search(folder: Path, figures: list[Path], caveats: list[str]) -> html.Section:
    """The figures of one search seed."""
    sources = {path.name: html.source_of(path.read_bytes(), path.suffix[1:]) for path in figures}
    body = html.render("search.html.j2", caveats=caveats, sources=sources)
    return html.Section(folder.name, f"Search, {folder.name.replace('-', ' ')}", body)


def _current_figures(folder: Path) -> list[Path]:
    """The seed's figures, drawn again where they are older than what they show."""
    sources = [folder / name for name in ("pi.npz", "metrics.jsonl", COST_PATH)]
    newest = max((path.stat().st_mtime_ns for path in sources if path.exists()), default=0)
    last = folder / "figures" / SEARCH_FIGURES[-1]
    if not last.exists() or last.stat().st_mtime_ns <= newest:
        write_search_figures(folder)
    figures = (folder / "figures" / name for name in SEARCH_FIGURES)
    return [path for path in figures if path.exists()]
