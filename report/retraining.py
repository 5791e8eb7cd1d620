"""The page's section about the layouts that were trained from scratch: curves and results."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from report import html
from report.curves import BLOCKS_WORDS, blocks_figure, described, validation_curves
from report.plotting import png
from report.run_files import read_json, read_metrics, reading, seed_folders
from utils.text import compact, duration

_COLUMNS = (  # title, unit; of what the number is, its key, and how it is written
    ("steps", "", "", "steps", "{:.0f}".format),
    ("parameters", "", "", "parameters", compact),
    ("FLOPs", "per token", "", "flops_per_token", compact),
    ("validation", "nats per token", "valid", "nats_per_token", "{:.4f}".format),
    ("test", "nats per token", "test", "nats_per_token", "{:.4f}".format),
    ("test", "perplexity", "test", "perplexity", "{:.2f}".format),
    ("test", "bits per byte", "test", "bits_per_byte", "{:.4f}".format),
    ("test", "word perplexity", "test", "word_perplexity", "{:.2f}".format),
    ("time", "with validation", "", "elapsed_s", duration),
)


def retraining_section(run_folder: Path, chosen: str | None) -> html.Section | None:
    """Curves and results, the layout of the name `chosen` first; None without any."""
    found = (path for path in (run_folder / "retrain").glob("*") if path.is_dir())
    folders = sorted(found, key=lambda folder: (folder.name != chosen, folder))
    twins = _same_trainings(folders)
    results, metrics = list[list[str]](), dict[str, list[pd.DataFrame]]()
    pictures = dict[str, html.Picture]()  # of what blocks say, one for each layout
    for seed in (seed for one in folders if one not in twins for seed in seed_folders(one)):
        name, path = seed.parent.name, seed / "metrics.jsonl"
        if (seed / "result.json").exists():
            results.append(_result_row(seed / "result.json"))
        if not path.exists():
            continue
        rows = read_metrics(path)
        if (rows["kind"] == "valid").any():
            metrics.setdefault(name, []).append(rows)
        if name not in pictures and (said := described(rows, path)):
            of = f"{name}, {seed.name.replace('-', ' ')}"
            caption = f"What blocks of {of} say of themselves; thick: mean. {BLOCKS_WORDS}."
            alt = "Line charts over the steps, a panel for each slot"
            pictures[name] = html.Picture(png(blocks_figure(said)), caption, alt)
    if not (metrics or results or pictures):
        return None
    curves = []
    if metrics:
        alt = f"Line chart of validation perplexity over the steps: {', '.join(metrics)}"
        caption = "Validation perplexity of the retrained layouts"
        curves = [html.Picture(png(validation_curves(metrics, chosen)), caption, alt)]
    # The columns that any row has something in.
    head = [("name", ""), ("seed", ""), *((title, unit) for title, unit, *_ in _COLUMNS)]
    columns = [i for i in range(len(head)) if any(row[i] != "-" for row in results)]
    shown = [(False, [row[i] for i in columns]) for row in results]
    return html.exhibit(
        "retraining",
        "Retraining",
        html.Table([head[i] for i in columns], shown, left=1, label="results") if shown else None,
        notes=[f"{twin.name} = {own.name}: one network" for twin, own in twins.items()],
        pictures=[*curves, *pictures.values()],
    )


def _result_row(path: Path) -> list[str]:
    result = read_json(path)
    with reading(path):
        cells = [str(result["name"]), str(result["seed"])]
        for _, _, part, key, written in _COLUMNS:
            value = (result[part] if part else result).get(key)
            cells.append("-" if value is None else written(value))
    return cells


def _same_trainings(folders: Sequence[Path]) -> dict[Path, Path]:
    """Folders that hold the network of an earlier one, trained alike to the end, and that one."""
    shown: dict[tuple[Any, ...], Path] = {}
    twins = {}
    for folder in folders:
        paths = [seed / "result.json" for seed in seed_folders(folder)]
        results = [read_json(path) for path in paths if path.exists()]
        if results:
            keys = ("network", "seed", "test")
            key = tuple(str([result.get(name) for name in keys]) for result in results)
            if shown.setdefault(key, folder) != folder:
                twins[folder] = shown[key]
    return twins
