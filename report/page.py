"""One self-contained HTML page about a run.

Every section is made from files; where they do not exist yet, the section is left out.
"""

import os
import shlex
from collections.abc import Mapping
from html import escape
from pathlib import Path
from urllib.parse import quote

from report import html
from report.blocks import BLOCKS_FIGURE
from report.comparison import Comparison, html_table, measure_of, read_comparison, scatter
from report.cost import COST_FIGURE, COST_PATH, has_costs
from report.layout import derived_section, likeliest_boxes
from report.pareto import pareto_section
from report.plotting import png
from report.retraining import retrained_folders, retraining_section
from report.run_files import (
    CAVEATS,
    REMEDY,
    Trajectory,
    read_caveats,
    read_joint_caveats,
    read_json,
    read_trajectory,
    seed_folders,
)
from report.search_figures import (
    SEARCH_FIGURES,
    SPREAD_FIGURES,
    comparable_searches,
    write_search_figures,
    write_spread_figures,
)
from report.trainings import trainings_section
from utils.files import MAX_BYTES, read_regular, write_whole
from utils.strict_yaml import YamlError, read_text, read_yaml

_ENOUGH_SEEDS = 3
_FACTS = {  # dotted key of the experiment: what the page calls it
    "data.corpus": "corpus",
    "model.slots": "slots",
    "model.d_model": "d_model",
    "search.steps": "search steps",
    "search.epochs": "search epochs",
    "search.estimator": "estimator",
    "search.alpha.data": "alpha's data",
    "derive.method": "derivation",
    "retrain.steps": "retraining steps",
    "retrain.epochs": "retraining epochs",
}
_FILES = {  # pattern in the run folder: what it holds
    "search/seed-*/pi.csv": "pi over the steps, thinned, as a long table",
    "search/seed-*/pi.npz": "pi, alpha and tau of every step",
    "search/seed-*/metrics.jsonl": "losses of the search",
    "search/seed-*/figures": "the figures of this page",
    "search/figures": "the figures of several searches",
    "architecture.json": "the chosen layout",
    "architectures/*.json": "a layout",
    "architectures/*.csv": "the layouts that were scored or trained for it",
    "retrain/*/seed-*/result.json": "result of a retraining",
    "retrain/*/seed-*/metrics.jsonl": "losses of a retraining",
    "model": "the chosen model, to carry away",
    "comparison.csv": "the comparison as a table",
    "comparison.json": "the comparison with every seed and the verdict",
}


def write_report(run_folder: Path) -> Path:
    """Write `report.html` into the run folder and return its path.

    Raises:
        ValueError: a file of the run is damaged; the message names it.
    """
    searches = {
        folder: read_trajectory(folder / "pi.npz") if (folder / "pi.npz").exists() else None
        for folder in seed_folders(run_folder / "search")
    }
    compared = (run_folder / "comparison.csv").exists()
    comparison = read_comparison(run_folder) if compared else None
    sections = [
        _settings(run_folder),
        derived_section(run_folder, [t for t in searches.values() if t is not None]),
        trainings_section(run_folder),
        _comparison(comparison) if comparison else "",
        pareto_section(run_folder),
        _several(run_folder),
        *(_search(folder, trajectory) for folder, trajectory in searches.items()),
        retraining_section(run_folder, comparison.searched if comparison else None),
        _next_steps(run_folder, comparison),
    ]
    page = html.page(run_folder.resolve().name, "".join(sections))
    return write_whole(run_folder / "report.html", page.encode())


def _settings(run_folder: Path) -> str:
    """What was searched: the facts of the experiment and of the machine."""
    folders = [
        *seed_folders(run_folder / "search"),
        *(seed for layout in retrained_folders(run_folder) for seed in seed_folders(layout)),
    ]
    facts, texts = dict[str, str](), ""
    readers = {"experiment.yaml": _experiment_facts, "environment.json": _environment_facts}
    for name, read in readers.items():
        path = next((folder / name for folder in folders if (folder / name).exists()), None)
        if path is not None:
            facts |= read(path)
            title = path.relative_to(run_folder).as_posix()
            content = read_regular(path, MAX_BYTES, REMEDY).decode("utf-8", "replace")
            texts += html.collapsible(title, content)
    return html.section("What was searched", html.facts(facts) + texts) if texts else ""


def _environment_facts(path: Path) -> dict[str, str]:
    known = read_json(path)
    keys = ("corpus", "device", "threads", "torch", "python", "commit")
    return {key: str(known[key]) for key in keys if known.get(key) not in (None, "")}


def _experiment_facts(path: Path) -> dict[str, str]:
    try:
        document = read_yaml(read_text(path))
    except YamlError as error:
        raise ValueError(f"{path}: not YAML ({error}); delete it") from error
    if document.problems:
        raise ValueError(f"{path}: {document.problems[0].text}; delete it")
    content = document.value
    facts = {}
    for dotted, name in _FACTS.items():
        value = content
        for key in dotted.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        if isinstance(value, str | int | float):
            facts[name] = str(value)
    return facts


def _comparison(comparison: Comparison) -> str:
    verdict = html.verdict(comparison.verdict) if comparison.verdict else ""
    texts = (comparison.legend, comparison.remarks, comparison.latency_note)
    note = "".join(html.note(text) for text in texts if text)
    caption = f"Test {measure_of(comparison)} against forward FLOPs per token"
    figure = html.image(png(scatter(comparison)), caption)
    body = verdict + html_table(comparison) + note + figure
    return html.section("Comparison on the test split", body)


def _several(run_folder: Path) -> str:
    """How far several searches differ."""
    if not (written := write_spread_figures(run_folder)):
        return ""
    figures = [html.image(path.read_bytes(), SPREAD_FIGURES[path.name]) for path in written]
    seeds = [_seed(folder) for folder in comparable_searches(run_folder)]
    caveats = html.caveats(read_joint_caveats(run_folder / "search" / CAVEATS, seeds))
    title = f"Searches of seeds {', '.join(map(str, seeds))} together"
    return html.section(title, caveats + "".join(figures))


def _seed(folder: Path) -> int:
    return int(folder.name.removeprefix("seed-"))


def _search(folder: Path, trajectory: Trajectory | None) -> str:
    """The figures of one search seed."""
    figures = _current_figures(folder)
    if not figures:
        return ""
    parts = []
    if trajectory is not None and not (folder.parents[1] / "architecture.json").exists():
        parts.append(html.paragraph(f"Likeliest at step {int(trajectory.step_N[-1])}, with pi:"))
        parts.append(likeliest_boxes(trajectory))
    alone = read_joint_caveats(folder.parent / CAVEATS, [_seed(folder)])
    parts.append(html.caveats([*read_caveats(folder / CAVEATS), *alone]))
    for path in figures:
        kind = "gif" if path.suffix == ".gif" else "png"
        parts.append(html.image(path.read_bytes(), SEARCH_FIGURES[path.name], kind=kind))
    return html.section(f"Search, {folder.name.replace('-', ' ')}", "".join(parts))


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


def _next_steps(run_folder: Path, comparison: Comparison | None) -> str:
    """Where the files are, and the command that goes on."""
    links = ""
    for pattern, meaning in _FILES.items():
        for path in sorted(run_folder.glob(pattern)):
            name = path.relative_to(run_folder).as_posix()
            links += (
                f'<li><a href="{escape(quote(name))}">{escape(name)}</a> {escape(meaning)}</li>'
            )
    commands = html.commands(_commands(run_folder, comparison))
    return html.section("Files, and how to go on", f'{commands}<ul class="files">{links}</ul>')


def _commands(run_folder: Path, comparison: Comparison | None) -> list[str]:
    relative = os.path.relpath(run_folder)
    folder = run_folder if relative.startswith("..") else Path(relative)
    shown = shlex.quote(str(folder))
    done = {
        "derive": (run_folder / "architecture.json").exists(),
        "retrain": any(run_folder.glob("retrain/*/seed-*/result.json")),
        "compare": comparison is not None,
    }
    commands = [f"python {verb}.py {shown}" for verb, finished in done.items() if not finished]
    if commands or comparison is None:
        return commands
    if int(comparison.rows["n"].min()) < _ENOUGH_SEEDS:
        commands.append(f"python compare.py {shown} --set 'compare.seeds=[0,1,2]'")
    searched = seed_folders(run_folder / "search")
    if searched:
        # The unit of replication is the search run.
        seed = _seed(searched[-1]) + 1
        file = shlex.quote(str(folder / "search" / searched[-1].name / "experiment.yaml"))
        commands.append(f"python search.py {file} --run {shown} --set run.seed={seed}")
    return commands
