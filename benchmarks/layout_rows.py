"""What benchmarks of layouts share: commands, trainings with a row each, times of models."""

import argparse
import csv
import json
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.keys import claim_key, key_of
from model import LanguageModel
from nas.costs.model import CostModel
from pipeline import cli
from pipeline.jobs import Job, run_all, training_result
from pipeline.plan import RunPlan
from training.run_dir import commit
from training.signals import StopRequest
from utils.files import csv_of, read_object, write_whole

FIGURES = ("valid_nats", "test_nats", "parameters", "flops_per_token", "elapsed_s")
WORKLOADS = ("latency", "train_step")
Row = dict[str, str]


class Commands:
    """A command line of several commands, each an action and options of its own, by its name."""

    def __init__(self, doc: str | None, **actions: Callable[[argparse.Namespace], None]) -> None:
        self._parser = cli.Parser(description=doc, formatter_class=cli.HelpWithDefaults)
        commands = self._parser.add_subparsers(required=True)
        self.named: dict[str, cli.Parser] = {}
        for name, act in actions.items():
            one = commands.add_parser(name, formatter_class=cli.HelpWithDefaults)
            one.set_defaults(act=act)
            self.named[name] = one

    def add_experiment(self, name: str, run: str) -> None:
        """Options of a command that reads an experiment and writes into a run folder."""
        self.named[name].add_argument("experiment", type=Path)
        self.named[name].add_argument("--set", action="append", default=[], help="override one key")
        self.named[name].add_argument("--run", type=Path, default=Path(run))

    def add_files_of_stages(self) -> None:
        """Options of commands that train rows, measure times, and report on both."""
        train, time, report = (self.named[name] for name in ("train", "time", "report"))
        train.add_argument("--workers", type=cli.number_from(1), default=1, metavar="N")
        time.add_argument("--json", type=Path, required=True)
        report.add_argument("--times", type=Path, help="what `time` wrote (default: none)")

    def run(self, argv: Sequence[str] | None) -> int:
        """Do what the arguments say; return the exit code."""
        arguments = self._parser.parse_args(argv)
        with cli.user_errors():
            arguments.act(arguments)
        return 0


def rows_of(path: Path) -> list[Row]:
    """The rows of a file; none where it is not there yet."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def claim(path: Path, plan: RunPlan) -> None:
    """Say beside a CSV what its rows belong to; ValueError where that is something else."""
    key = key_of(plan.experiment, plan.inputs())
    claim_key(path.with_suffix(".json"), key, "give another --csv")


def train_rows(
    path: Path,
    columns: Sequence[str],
    trainings: Sequence[tuple[Job, Row]],
    *,
    workers: int,
    stop: StopRequest,
) -> None:
    """Train all; the row of a training gets its figures and is written as soon as it ends.

    Nats of what diverged are infinite.
    """
    rows, row_of = rows_of(path), {job.name: row for job, row in trainings}
    lock, left = threading.Lock(), len(row_of)

    def add(job: Job, figures: Mapping[str, object]) -> None:
        nonlocal left
        # Jobs end in several threads.
        with lock:
            rows.append(row_of[job.name] | {name: str(value) for name, value in figures.items()})
            write_whole(path, csv_of(rows, columns))
            left -= 1
            print(f"{job.name}: {figures['valid_nats']} nats; {left} left", flush=True)

    run_all(
        [job for job, _ in trainings],
        workers=workers,
        stop=stop,
        done=lambda job: add(job, figures_of(job)),
        diverged=lambda job, words: add(job, {"valid_nats": math.inf, "test_nats": math.inf}),
    )


def figures_of(job: Job) -> dict[str, object]:
    """What a finished training came to."""
    path = training_result(job)
    assert path is not None, job.folder
    result = read_object(path)
    return {
        "valid_nats": round(result["valid"]["nats_per_token"], 6),
        "test_nats": round(result["test"]["nats_per_token"], 6),
        "parameters": result["parameters"],
        "flops_per_token": result["flops_per_token"],
        "elapsed_s": result["elapsed_s"],
    }


def write_times(path: Path, measurement: CostModel, models: Mapping[str, LanguageModel]) -> None:
    """Time a segment and a training step of every model, in turn, and write the medians."""
    times = {
        workload: {"key": measurement.shapes.key(workload)}
        | {"median_ms": measurement.times_of(workload, models)}
        for workload in WORKLOADS
    }
    write_whole(path, json.dumps(times | {"commit": commit()}, indent=1) + "\n")
