"""The page's section about the layouts that were trained from scratch: curves and results."""

from pathlib import Path

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
    found = (path for path in (run_folder / "retrain").glob("*") if path.is_dir())
    folders = sorted(found, key=lambda folder: (folder.name != chosen, folder))
    results, metrics = list[list[str]](), dict[str, list[pd.DataFrame]]()
    first, twins = dict[str, str](), list[str]()  # by what tells trainings apart, names
    for folder in folders:
        rows, key = list[list[str]](), ""
        for path in (seed / "result.json" for seed in seed_folders(folder)):
            if path.exists():
                result = read_object(path)
                key += f"{result.get('network')} {result['seed']} {result['test']}\n"
                rows += html.cells_of(pd.json_normalize(result), _COLUMNS)
        if rows and first.setdefault(key, folder.name) != folder.name:
            twins.append(f"{folder.name} and {first[key]} are one network.")
            continue
        results += rows
        paths = (seed / "metrics.jsonl" for seed in seed_folders(folder))
        seeds = [read_metrics(path) for path in paths if path.exists()]
        if seeds := [frame for frame in seeds if (frame["kind"] == "valid").any()]:
            metrics[folder.name] = seeds
    if not (metrics or results):
        return None
    curves = []
    if metrics:
        alt = f"Line chart of validation perplexity over the steps: {', '.join(metrics)}"
        caption = "Validation perplexity of the retrained layouts"
        curves = [html.Picture(png(validation_curves(metrics, chosen)), caption, alt)]
    # The columns that any row has something in.
    columns = [i for i in range(len(_COLUMNS)) if any(row[i] != "-" for row in results)]
    head = [(_COLUMNS[i].title, _COLUMNS[i].unit) for i in columns]
    shown = [(False, [row[i] for i in columns]) for row in results]
    return html.exhibit(
        "retraining",
        "Retraining",
        html.Table(head, shown, left=1, label="results") if shown else None,
        notes=twins,
        pictures=curves,
    )
