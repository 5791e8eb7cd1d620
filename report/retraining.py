"""The page's section about the layouts that were trained from scratch: curves and results."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from report import html
from report.blocks import BLOCKS_WORDS, blocks_figure, described
from report.curves import validation_curves
from report.plotting import png
from report.run_files import read_json, read_metrics, seed_folders
from utils.text import compact, duration

_WORDS = "word perplexity"
_COLUMNS = (  # title, unit; of what the number is, its key, and how it is written
    ("steps", "", "", "steps", "{:.0f}".format),
    ("parameters", "", "", "parameters", compact),
    ("FLOPs", "per token", "", "flops_per_token", compact),
    ("validation", "nats per token", "valid", "nats_per_token", "{:.4f}".format),
    ("test", "nats per token", "test", "nats_per_token", "{:.4f}".format),
    ("test", "perplexity", "test", "perplexity", "{:.2f}".format),
    ("test", "bits per byte", "test", "bits_per_byte", "{:.4f}".format),
    ("test", _WORDS, "test", "word_perplexity", "{:.2f}".format),
    ("time", "with validation", "", "elapsed_s", duration),
)


def retrained_folders(run_folder: Path) -> list[Path]:
    """A folder for each layout that was retrained."""
    return sorted(path for path in (run_folder / "retrain").glob("*") if path.is_dir())


def retraining_section(run_folder: Path, chosen: str | None) -> html.Section | None:
    """Curves and results, the layout of the name `chosen` first; None without any."""
    results, metrics, says = [], dict[str, list[pd.DataFrame]](), dict[str, str]()
    folders = sorted(retrained_folders(run_folder), key=lambda folder: folder.name != chosen)
    twins = _same_trainings(folders)
    for folder in sorted(set(folders) - twins.keys()):
        for seed in seed_folders(folder):
            if (seed / "result.json").exists():
                results.append(_result_row(seed / "result.json"))
            if (seed / "metrics.jsonl").exists():
                rows = read_metrics(seed / "metrics.jsonl")
                if (rows["kind"] == "valid").any():
                    metrics.setdefault(folder.name, []).append(rows)
                found = described(rows, seed / "metrics.jsonl")
                if found and folder.name not in says:
                    of = f"{folder.name}, {seed.name.replace('-', ' ')}"
                    caption = f"What blocks of {of} say of themselves; thick: mean. {BLOCKS_WORDS}."
                    alt = "Line charts over the steps, a panel for each slot"
                    says[folder.name] = html.image(png(blocks_figure(found)), caption, alt)
    parts = []
    if metrics:
        figure = png(validation_curves(metrics, chosen))
        alt = f"Line chart of validation perplexity over the steps: {', '.join(metrics)}"
        parts.append(html.image(figure, "Validation perplexity of the retrained layouts", alt))
    if results:
        parts.append(_result_table(results))
    parts += says.values()
    if parts and twins:
        lines = [f"{twin.name} = {shown.name}: one network" for twin, shown in twins.items()]
        parts.append(html.note("\n".join(lines)))
    return html.Section("retraining", "Retraining", "".join(parts)) if parts else None


def _result_row(path: Path) -> list[str]:
    result = read_json(path)
    cells = [
        str(result.get("name", path.parent.parent.name)),
        str(result.get("seed", path.parent.name.removeprefix("seed-"))),
    ]
    for _, _, part, key, written in _COLUMNS:
        scores = result.get(part) if part else result
        if scores is not None and not isinstance(scores, dict):
            raise ValueError(f"{path}: {part}: expected an object, found {scores!r}")
        value = (scores or {}).get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise ValueError(f"{path}: {key}: expected a number, found {value!r}")
        if value is not None and not abs(value) <= sys.float_info.max:
            raise ValueError(f"{path}: {key}: expected a finite number, found {value!r:.40}")
        cells.append("-" if value is None else written(value))
    return cells


def _result_table(rows: Sequence[Sequence[str]]) -> str:
    """The rows as HTML; the column of word perplexity only where a row has one."""
    head = [("name", ""), ("seed", ""), *((title, unit) for title, unit, *_ in _COLUMNS)]
    words = head.index(("test", _WORDS))
    columns = [i for i in range(len(head)) if i != words or any(row[i] != "-" for row in rows)]
    shown = [("", [row[i] for i in columns]) for row in rows]
    return html.table([head[i] for i in columns], shown, left=1, says="results")


def _same_trainings(folders: Sequence[Path]) -> dict[Path, Path]:
    """Folders that hold the network of an earlier one, trained alike to the end, and that one."""
    shown: dict[tuple[Any, ...], Path] = {}
    twins = {}
    for folder in folders:
        paths = [seed / "result.json" for seed in seed_folders(folder)]
        results = [read_json(path) for path in paths if path.exists()]
        # A result of an older version does not say which network it is of.
        if results and all("network" in result for result in results):
            key = tuple(
                (str(result["network"]), str(result.get("seed")), str(result.get("test")))
                for result in results
            )
            if shown.setdefault(key, folder) != folder:
                twins[folder] = shown[key]
    return twins
