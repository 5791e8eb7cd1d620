"""When trained layouts learn what sets them apart: training nats over the steps.

    python -m benchmarks.learning_curves collect --run RUN --csv FILE
    python -m benchmarks.learning_curves draw --csv FILE --less LAYOUT --figure FILE

collect: adds what the trainings of a folder of `benchmarks.headline` logged to the rows of a CSV.
draw: a line for each training, a colour for each layout, less the mean of one layout's trainings.
All trainings of as many steps read the same text at the same step, so what is left is no text.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from benchmarks.keys import check_key
from benchmarks.layout_rows import Commands, Row, rows_of
from pipeline.experiment import load_experiment
from report.plotting import HUES, colours, dashes, framed, png
from report.run_files import read_metrics
from utils.files import csv_of, read_object, write_whole

COLUMNS = ("layout", "steps", "lr", "seed", "step", "train_nats")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    commands = Commands(__doc__, collect=collect, draw=draw)
    for one in commands.named.values():
        one.add_argument("--csv", type=Path, required=True)
    commands.named["collect"].add_argument("--run", type=Path, required=True)
    commands.named["draw"].add_argument("--figure", type=Path, required=True, help="a PNG")
    commands.named["draw"].add_argument("--less", metavar="LAYOUT", required=True)
    return commands.run(argv)


def collect(arguments: argparse.Namespace) -> None:
    """Add the trainings that have ended and that the CSV lacks.

    Raises:
        ValueError: the CSV has other columns, nothing below the folder has ended, or a training
            is of another text or another size than the rest.
    """
    rows = rows_of(arguments.csv)
    if rows and tuple(rows[0]) != COLUMNS:
        raise ValueError(f"{arguments.csv}: has columns {', '.join(rows[0])}; give another --csv")
    known, key_file = {training_of(row) for row in rows}, arguments.csv.with_suffix(".json")
    results = sorted(arguments.run.glob("**/retrain/*/seed-*/result.json"))
    if not results:
        raise ValueError(f"{arguments.run}: no training below it has ended; give another --run")
    keys = [key_of_training(result) for result in results]
    if not key_file.exists():
        write_whole(key_file, json.dumps(keys[0], indent=1) + "\n")
    for result, key in zip(results, keys, strict=True):
        check_key(key_file, key, f"give {result.parent} another --csv")
        rows += [row for row in logged_rows(result) if training_of(row) not in known]
    write_whole(arguments.csv, csv_of(rows, COLUMNS))


def key_of_training(result_file: Path) -> dict[str, Any]:
    """What all trainings of one CSV share: its text and the sizes of the model."""
    experiment = load_experiment(result_file.parent / "experiment.yaml")
    data = experiment.data.model_dump(mode="json")
    return {"data": data, "model": experiment.model.identity()}


def training_of(row: Row) -> tuple[str, ...]:
    """What tells one training from another."""
    return tuple(row[name] for name in ("layout", "steps", "lr", "seed"))


def logged_rows(result_file: Path) -> Iterator[Row]:
    """Training nats of one training, each the mean since the row before."""
    result = read_object(result_file)
    metrics = read_metrics(result_file.parent / "metrics.jsonl")
    logged = metrics[metrics["kind"] == "train"]
    experiment = load_experiment(result_file.parent / "experiment.yaml")
    for step, nats in zip(logged["step"], logged["loss_nats"], strict=True):
        yield {
            "layout": result["layout"].replace(" ", "").rstrip("i"),
            "steps": str(result["steps"]),
            "lr": str(experiment.retrain.optimiser.lr),
            "seed": str(result["seed"]),
            "step": str(int(step)),
            "train_nats": f"{nats:.4f}",
        }


def draw(arguments: argparse.Namespace) -> None:
    """Draw the rows of a CSV."""
    figure = learning_curves(rows_of(arguments.csv), arguments.less)
    write_whole(arguments.figure, png(figure))


def learning_curves(rows: Sequence[Row], base: str) -> Figure:
    """Training nats less the mean of `base`'s: a colour for a layout, a dash for a number of steps.

    Raises:
        ValueError: there is no training of `base`, or none of as many steps as another one.
    """
    layouts, lengths = (list(dict.fromkeys(row[of] for row in rows)) for of in ("layout", "steps"))
    colour_of, means = colours(layouts), means_of(base, rows)
    if missing := (set(lengths) or {"any"}) - {steps for steps, _ in means}:
        raise ValueError(f"{base}: no training of {min(missing)} steps to compare others with")
    lines: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        lines.setdefault(training_of(row), []).append(row)
    with framed(7.6, 4.2, left=0.8, top=0.4) as (figure, grid):
        axes = grid[0, 0]
        for (layout, steps, *_), points in lines.items():
            axes.plot(
                [int(row["step"]) for row in points],
                [float(row["train_nats"]) - means[steps, row["step"]] for row in points],
                color=colour_of[layout],
                linestyle=dashes(lengths.index(steps)),
                linewidth=1.1,
            )
        names = [Line2D([], [], color=colour_of[one], label=one) for one in layouts]
        names += [
            Line2D([], [], color=HUES["baseline"], linestyle=dashes(at), label=f"{steps} steps")
            for at, steps in enumerate(lengths if len(lengths) > 1 else [])
        ]
        axes.legend(handles=names, loc="best")
        axes.set_title(f"When does a layout learn more than {base}? (lower is better)", loc="left")
        axes.set_xlabel("step")
        axes.set_ylabel("difference in training loss, nats per token")
        axes.grid(axis="y")
    return figure


def means_of(layout: str, rows: Sequence[Row]) -> dict[tuple[str, str], float]:
    """Mean training nats of a layout by number of steps and step."""
    nats: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if row["layout"] == layout:
            nats.setdefault((row["steps"], row["step"]), []).append(float(row["train_nats"]))
    return {at: fmean(values) for at, values in nats.items()}


if __name__ == "__main__":
    sys.exit(main())
