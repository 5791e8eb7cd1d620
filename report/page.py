"""One self-contained HTML page about a run: the answer first, then what speaks for it.

Every section is made from files; where they do not exist yet, the section is left out.
"""

from collections.abc import Sequence
from pathlib import Path

from report import html
from report.answer import Known, answer
from report.commands import commands_section, next_commands
from report.comparison import Comparison, html_table, read_comparison
from report.comparison_figure import costs_drawn, measure_of, scatter
from report.derivation import front_section, front_sentence, trainings_section
from report.layouts import (
    Contender,
    Layout,
    compared,
    derived_section,
    layouts_section,
    read_layouts,
    uncompared,
)
from report.plotting import png
from report.retraining import retraining_section
from report.run_files import Trajectory, read_trajectory, seed_folders
from report.searches import search_caveats, search_sections
from report.stack import Palette, palette_of


def write_report(run_folder: Path) -> Path:
    """Write `report.html` into the run folder and return its path.

    Raises:
        ValueError: a file of the run is broken; the message names it.
    """
    searches = {
        folder: read_trajectory(folder / "pi.npz") if (folder / "pi.npz").exists() else None
        for folder in seed_folders(run_folder / "search")
    }
    compared_yet = (run_folder / "comparison.csv").exists()
    comparison = read_comparison(run_folder) if compared_yet else None
    chosen, others = read_layouts(run_folder)
    layouts = [*([chosen] if chosen else []), *others]
    contenders = (
        compared(comparison, layouts) if comparison else uncompared(run_folder, chosen, others)
    )
    trajectories = [trajectory for trajectory in searches.values() if trajectory is not None]
    palette = _palette(trajectories, contenders, layouts)
    found = search_sections(run_folder, searches)
    shown = _shown(contenders, chosen, layouts)
    known = Known(
        contenders,
        comparison,
        likeliest=trajectories[-1] if trajectories and not chosen else None,
        pi_L=shown.pi_L if shown else None,
        caveats=[
            *_chosen_since(shown, chosen),
            *(shown.caveats if shown else search_caveats(run_folder)),
        ],
        next_commands=next_commands(run_folder, comparison),
        front=front_sentence(run_folder),
        caveats_key="derived" if chosen or not found else found[0].key,
    )
    sections = [
        answer(known, palette),
        _comparison(comparison) if comparison else None,
        layouts_section(contenders, palette),
        front_section(run_folder),
        *found,
        derived_section(chosen, palette) if chosen else None,
        trainings_section(run_folder),
        retraining_section(run_folder, comparison.chosen if comparison else None),
        commands_section(run_folder, comparison),
    ]
    name = run_folder.resolve().name
    return html.write_page(run_folder / "report.html", name, sections, palette.block_px)


def _shown(
    contenders: Sequence[Contender], chosen: Layout | None, layouts: Sequence[Layout]
) -> Layout | None:
    """The layout that the first screen is about: the one that was compared, or the chosen one."""
    name = next((one.name for one in contenders if one.is_chosen), None)
    return next((layout for layout in layouts if layout.name == name), chosen)


def _chosen_since(shown: Layout | None, chosen: Layout | None) -> list[str]:
    """Warning that another layout was chosen after the comparison, where it is another."""
    if shown is None or chosen is None or shown.name == chosen.name:
        return []
    return [f"{chosen.name} was chosen after this comparison of {shown.name}: compare again"]


def _palette(
    searches: Sequence[Trajectory], contenders: Sequence[Contender], layouts: Sequence[Layout]
) -> Palette:
    """Labels have the colours that they have in the figures of the searches, which come first."""
    drawn = [*(one.labels for one in contenders), *(one.labels for one in layouts)]
    slots = [*map(len, drawn), *(search.pi_NLC.shape[1] for search in searches)]
    groups = [*(search.labels for search in searches), *drawn]
    return palette_of((label for group in groups for label in group), max(slots, default=1))


def _comparison(comparison: Comparison) -> html.Section:
    texts = (comparison.legend, comparison.remarks, comparison.latency_note)
    what = f"{measure_of(comparison)} against {' and '.join(costs_drawn(comparison))}"
    alt = f"Scatter plot of {what}; a point for each of {', '.join(comparison.rows['name'])}"
    return html.exhibit(
        "comparison",
        "Comparison on the test split",
        html_table(comparison),
        verdict=comparison.verdict.splitlines(),
        notes=[line for text in texts for line in text.splitlines()],
        pictures=[html.Picture(png(scatter(comparison)), f"Test {what}", alt)],
    )
