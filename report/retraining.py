"""The page's section about the layouts that were trained from scratch: curves and results."""

from pathlib import Path
from typing import Any

import pandas as pd

from report import html
from report.curves import validation_curves
from report.html import Column
from report.plotting import png
from report.run_files import read_metrics, seed_folders
from utils.files import read_object
from utils.text import compact, duration

_NATS, _DIGITS = "{:.4f}".format, "{:.2f}".format
_COLUMNS = (
    Column("name", "", "name"),
    Column("seed", "", "seed"),
    Column("steps", "", "steps", "{:.0f}".format),
    Column("parameters", "", "parameters", compact),
    Column("FLOPs", "per token", "flops_per_token", compact),
    Column("validation", "nats per token", "valid.nats_per_token", _NATS),
    Column("test", "perplexity", "test.perplexity", _DIGITS),
    Column("test", "nats per token", "test.nats_per_token", _NATS),
    Column("test", "bits per byte", "test.bits_per_byte", _NATS),
    Column("test", "word perplexity", "test.word_perplexity", _DIGITS),
    Column("start", "", "start.name"),
    Column("teacher", "", "teacher.name"),
    Column("teacher", "FLOPs per token", "teacher.flops_per_token", compact),
    Column("time", "with validation", "elapsed_s", duration),
)


def retraining_section(run_folder: Path, chosen: str | None) -> html.Section | None:
    """Curves and results, the layout of the name `chosen` first; None without any."""
    found = (run_folder / "retrain").glob("*")
    folders = sorted(found, key=lambda folder: (folder.name != chosen, folder))
    results, metrics = list[dict[str, Any]](), dict[str, list[pd.DataFrame]]()
    first, twins = dict[str, str](), list[str]()  # by what tells trainings apart, names
    for folder in folders:
        seeds = seed_folders(folder)
        paths = (seed / "result.json" for seed in seeds)
        rows = [read_object(path) for path in paths if path.exists()]
        key = str([(row.get("network"), row["seed"], row["test"]) for row in rows])
        if rows and first.setdefault(key, folder.name) != folder.name:
            twins.append(f"{folder.name} and {first[key]} are one network.")
            continue
        results += rows
        paths = (seed / "metrics.jsonl" for seed in seeds)
        seen = [read_metrics(path) for path in paths if path.exists()]
        # One reading is no curve; the table has it.
        if seen := [frame for frame in seen if (frame["kind"] == "valid").sum() > 1]:
            metrics[folder.name] = seen
    if not (metrics or results):
        return None
    curves = []
    if metrics:
        alt = f"Line chart of validation perplexity over the steps: {', '.join(metrics)}"
        caption = "Validation perplexity of the retrained layouts"
        curves = [html.Picture(png(validation_curves(metrics, chosen)), caption, alt)]
    table = pd.json_normalize(results).dropna(axis=1, how="all")
    columns = [column for column in _COLUMNS if column.key in table]
    marked = [False] * len(table)
    return html.exhibit(
        "retraining",
        "Retraining",
        html.table_of(table, columns, marked, left=1, label="results") if results else None,
        notes=twins,
        pictures=curves,
    )
