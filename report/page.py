"""One self-contained HTML page about a run: the answer first, then what speaks for it.

Every section is made from files; where they do not exist yet, the section is left out.
"""

from pathlib import Path

import numpy as np

from report import html
from report.answer import answer
from report.commands import commands_section, next_commands
from report.comparison import Comparison, html_table, read_comparison
from report.comparison_figure import scatter
from report.derivation import read_trainings, trainings_section, trainings_sentence
from report.layouts import (
    compared,
    derived_section,
    layouts_section,
    palette_of,
    read_layouts,
    uncompared,
)
from report.plotting import png
from report.retraining import retraining_section
from report.run_files import read_trajectory, seed_folders
from report.searches import search_caveats, search_sections
from report.shrinking import shrinking_section


def write_report(run_folder: Path) -> Path:
    """Write `report.html` into the run folder and return its path."""
    searches = {
        folder: read_trajectory(folder / "pi.npz") if (folder / "pi.npz").exists() else None
        for folder in seed_folders(run_folder / "search")
    }
    known = [trajectory for trajectory in searches.values() if trajectory is not None]
    is_compared = (run_folder / "comparison.json").exists()
    comparison = read_comparison(run_folder) if is_compared else None
    chosen, others = read_layouts(run_folder)
    layouts = [*([chosen] if chosen else []), *others]
    contenders = (
        compared(comparison, layouts) if comparison else uncompared(run_folder, layouts, chosen)
    )
    # Labels have the colours that they have in the figures of the searches, which come first.
    labels = [*(one.labels for one in known), *contenders["labels"]]
    labels += [one.labels for one in layouts]
    palette = palette_of(labels, max((one.pi_NLC.shape[1] for one in known), default=1))
    found = search_sections(searches)
    # Nothing is likeliest before alpha moves, nor where it never does.
    last = next((one for one in known[-1:] if not chosen and np.ptp(one.pi_NLC[-1])), None)
    # The first screen is about the layout that was compared, or else about the chosen one.
    name = next(iter(contenders["name"][contenders["is_chosen"].astype(bool)]), None)
    shown = next((layout for layout in layouts if layout.name == name), chosen)
    caveats = list(shown.caveats) if shown else search_caveats(searches)
    if shown and chosen and shown.name != chosen.name:
        since = f"{chosen.name} was chosen after this comparison of {shown.name}: compare again"
        caveats.insert(0, since)
    trainings = read_trainings(run_folder)
    left = next_commands(run_folder, comparison)
    sections = [
        answer(
            contenders,
            comparison,
            palette,
            likeliest=last,
            pi_L=shown.pi_L if shown else None,
            budget=shown.budget if shown else "",
            caveats=caveats,
            caveats_key="derived" if chosen or not found else found[0].key,
            next_command=left[0] if left else "",
            trained=trainings_sentence(trainings) if trainings else "",
        ),
        _comparison(comparison) if comparison else None,
        layouts_section(contenders, palette),
        *found,
        derived_section(chosen, palette) if chosen else None,
        trainings_section(trainings) if trainings else None,
        shrinking_section(run_folder),
        retraining_section(run_folder, comparison.chosen if comparison else None),
        commands_section(run_folder, left),
    ]
    title = run_folder.resolve().name
    return html.write_page(run_folder / "report.html", title, sections, palette.block_px)


def _comparison(comparison: Comparison) -> html.Section:
    texts = (comparison.legend, comparison.remarks, comparison.latency_note)
    what = "Test perplexity of each layout against its costs"
    alt = f"{what}: a scatter plot of {', '.join(comparison.rows['name'])}"
    return html.exhibit(
        "comparison",
        "Comparison on the test split",
        html_table(comparison),
        verdict=[*filter(None, [comparison.saving]), *comparison.verdict.splitlines()],
        notes=[line for text in texts for line in text.splitlines()],
        pictures=[html.Picture(png(scatter(comparison)), what, alt)],
    )
