"""What layouts within budgets of latency are worth beside interleaved: arms, rates and verdicts.

An arm is a layout, what else it has than the experiment says, and its seeds. Each has the learning
rate of least validation nats among `rates`, by one training with a seed of its own; then it is
trained with its fresh seeds. What is trained already is not trained again.

    python -m benchmarks.headline train configs/headline.yaml --arms FILE --csv FILE --workers 2
    python -m benchmarks.headline time configs/headline.yaml --arms FILE --json FILE
    python -m benchmarks.headline report --arms FILE --csv FILE [--times FILE]

report: test nats of every arm and the comparisons that the arms' file states. Primary ones: paired
differences over seeds (Student's t); one with a margin asks for a one-sided 95% bound below it.
Secondary ones: the difference of two arms' means in a least squares fit of arms and seeds to all
trainings with fresh seeds, with its residuals' deviation; p values by Holm's method.
"""

import argparse
import csv
import json
import math
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from pydantic import BaseModel, ConfigDict, Field
from scipy import stats

from benchmarks.arms_fit import fitted, holm
from model import parse_layout
from nas.derivation.base import Layout
from nas.statistics.intervals import paired_interval
from pipeline import cli
from pipeline.context import RunPlan, set_up
from pipeline.costs import measurement_of
from pipeline.experiment import Experiment, load_experiment, with_settings
from pipeline.jobs import Job, check_key, key_of, layout_job, run_all, training_result
from pipeline.run_files import read_result
from training.run_dir import commit
from training.signals import StopRequest
from utils.files import csv_of, write_whole

COLUMNS = (
    "arm", "layout", "settings", "lr", "seed", "valid_nats", "test_nats", "parameters",
    "flops_per_token", "elapsed_s",
)  # fmt: skip
RATE = "retrain.optimiser.lr"
WORKLOADS = ("latency", "train_step")
Row = dict[str, str]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Arm(_Strict):
    """One network and how it is trained; `like` is the arm whose learning rate it takes."""

    name: str
    layout: str
    settings: dict[str, int | float] = Field(default_factory=dict)
    seeds: tuple[int, ...]
    like: str | None = None

    def experiment(self, experiment: Experiment, rate: float | None = None) -> Experiment:
        """The experiment as this arm has it."""
        return with_settings(experiment, self.settings | ({RATE: rate} if rate else {}))


class Comparison(_Strict):
    """An arm against another, or against the mean of several."""

    arm: str
    against: tuple[str, ...]
    primary: bool = False
    margin_nats: float | None = None  # not worse by so much is enough


class Arms(_Strict):
    """The file of arms."""

    rates: tuple[float, ...]
    rate_seed: int
    arms: tuple[Arm, ...]
    comparisons: tuple[Comparison, ...] = ()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = cli.Parser(description=__doc__, formatter_class=cli.HelpWithDefaults)
    commands = parser.add_subparsers(required=True)
    for name, act in (("train", train), ("time", time), ("report", report)):
        one: cli.Parser = commands.add_parser(name, formatter_class=cli.HelpWithDefaults)
        one.set_defaults(act=act)
        if name != "report":
            one.add_argument("experiment", type=Path)
            one.add_argument("--set", action="append", default=[], help="override one key")
            one.add_argument("--run", type=Path, default=Path("runs/headline-arms"))
        one.add_argument("--arms", type=Path, required=True, help="a YAML file")
        if name != "time":
            one.add_argument("--csv", type=Path, required=True, help="a row for each training")
        if name == "train":
            one.add_argument("--workers", type=cli.number_from(1), default=1, metavar="N")
        if name == "time":
            one.add_argument("--json", type=Path, required=True)
        if name == "report":
            one.add_argument("--times", type=Path, help="what `time` wrote (default: none)")
    arguments = parser.parse_args(argv)
    arguments.act(arguments)
    return 0


def arms_of(path: Path) -> Arms:
    """The arms of a file."""
    return Arms.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))


def rows_of(path: Path) -> list[Row]:
    """The rows of a file; none where it is not there yet."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def train(arguments: argparse.Namespace) -> None:
    """Train every arm with every rate, then with its own rate and its seeds."""
    arms, experiment = arms_of(arguments.arms), load_experiment(arguments.experiment, arguments.set)
    plan = set_up(experiment, arguments.run)
    key_file = arguments.csv.with_suffix(".json")
    key = key_of(experiment, plan.inputs())
    if key_file.exists():
        check_key(key_file, key)
    else:
        write_whole(key_file, json.dumps({**key, "commit": commit()}, indent=1) + "\n")
    table = Table(arguments.csv, arguments.run)
    stop = StopRequest()
    with stop.listening():
        grid = [
            (arm, rate, arms.rate_seed)
            for arm in arms.arms
            if arm.like is None
            for rate in arms.rates
        ]
        table.train(experiment, grid, arguments.workers, stop)
        rates = rates_of(arms, rows_of(arguments.csv))
        fresh = [(arm, rates[arm.name], seed) for arm in arms.arms for seed in arm.seeds]
        table.train(experiment, fresh, arguments.workers, stop)


@dataclass
class Table:
    """The file of rows, one for each training."""

    path: Path
    run: Path

    def train(
        self,
        experiment: Experiment,
        trainings: Sequence[tuple[Arm, float, int]],
        workers: int,
        stop: StopRequest,
    ) -> None:
        """Train what has no row yet; a row is written as soon as a training ends."""
        rows = rows_of(self.path)
        known = {identity(row) for row in rows}
        waiting: dict[str, tuple[Job, Row]] = {}
        for arm, rate, seed in trainings:
            row = {
                "arm": arm.name,
                "layout": arm.layout,
                "settings": json.dumps(arm.settings, sort_keys=True),
                "lr": str(rate),
                "seed": str(seed),
            }
            if identity(row) in known:
                continue
            known.add(identity(row))
            widths = "-".join(f"{key}={value}" for key, value in sorted(arm.settings.items()))
            folder = self.run / (widths or "plain") / f"lr-{rate}"
            job = layout_job(arm.experiment(experiment, rate), arm.layout, seed, folder)
            job = Job(
                f"{arm.name}, lr {rate}, seed {seed}", job.experiment, job.scripts, job.folder
            )
            waiting[job.name] = job, row
        lock, total = threading.Lock(), len(waiting)

        def add(job: Job, figures: Mapping[str, object]) -> None:
            with lock:
                rows.append(waiting[job.name][1] | {k: str(v) for k, v in figures.items()})
                write_whole(self.path, csv_of(rows, COLUMNS))
                left = total - sum(identity(row) in mine for row in rows)
                print(f"{job.name}: {figures['valid_nats']} nats; {left} left", flush=True)

        mine = {identity(row) for _, row in waiting.values()}
        run_all(
            [job for job, _ in waiting.values()],
            workers=workers,
            stop=stop,
            done=lambda job: add(job, figures_of(job)),
            diverged=lambda job, words: add(job, {"valid_nats": math.inf, "test_nats": math.inf}),
        )


def identity(row: Row) -> tuple[str, ...]:
    """What one training is; arms of other names may share it."""
    return tuple(row[name] for name in ("layout", "settings", "lr", "seed"))


def figures_of(job: Job) -> dict[str, object]:
    """What a finished training came to."""
    path = training_result(job)
    assert path is not None, job.folder
    result = read_result(path)
    return {
        "valid_nats": round(result["valid"]["nats_per_token"], 6),
        "test_nats": round(result["test"]["nats_per_token"], 6),
        "parameters": result["parameters"],
        "flops_per_token": result["flops_per_token"],
        "elapsed_s": result["elapsed_s"],
    }


def rates_of(arms: Arms, rows: Sequence[Row]) -> dict[str, float]:
    """The learning rate of every arm.

    Raises:
        ValueError: not all rates of an arm are trained.
    """
    rates: dict[str, float] = {}
    for arm in arms.arms:
        if arm.like is not None:
            rates[arm.name] = rates[arm.like]
            continue
        nats = {
            float(row["lr"]): float(row["valid_nats"])
            for row in rows_of_arm(arm, rows)
            if int(row["seed"]) == arms.rate_seed and float(row["lr"]) in arms.rates
        }
        if len(nats) < len(arms.rates):
            raise ValueError(f"{arm.name}: {len(nats)} of {len(arms.rates)} rates are trained")
        rates[arm.name] = min(nats, key=nats.__getitem__)
    return rates


def rows_of_arm(arm: Arm, rows: Sequence[Row]) -> Iterator[Row]:
    """The trainings of its network as it is trained, at all rates."""
    settings = json.dumps(arm.settings, sort_keys=True)
    return (row for row in rows if (row["layout"], row["settings"]) == (arm.layout, settings))


def time(arguments: argparse.Namespace) -> None:
    """Measure the latency and a training step of every arm, in turn, and write the medians."""
    arms, experiment = arms_of(arguments.arms), load_experiment(arguments.experiment, arguments.set)
    plan = set_up(experiment, arguments.run)
    layouts = {arm.name: _slots(plan, arm) for arm in arms.arms}
    measurement = measurement_of(plan)
    times = {
        workload: {"key": measurement.shapes.key(workload)}
        | {"median_ms": measurement.times_ms(workload, layouts)}
        for workload in WORKLOADS
    }
    write_whole(arguments.json, json.dumps(times | {"commit": commit()}, indent=1) + "\n")


def _slots(plan: RunPlan, arm: Arm) -> Layout:
    return parse_layout(arm.layout, arm.experiment(plan.experiment).model.completed_candidates())


def report(arguments: argparse.Namespace) -> None:
    """Print the arms and the comparisons."""
    arms, rows = arms_of(arguments.arms), rows_of(arguments.csv)
    times = json.loads(arguments.times.read_text()) if arguments.times else {}
    rates = rates_of(arms, rows)
    nats = {arm.name: nats_of(arm, rates[arm.name], rows) for arm in arms.arms}
    first = arms.arms[0].name
    for arm in arms.arms:
        print(arm_line(arm, rates[arm.name], nats[arm.name], nats[first], times, first))
    for comparison in arms.comparisons:
        if comparison.primary:
            print(primary_line(comparison, nats))
    secondary = [comparison for comparison in arms.comparisons if not comparison.primary]
    fit = fitted(nats)
    print(f"one training: sd {fit.deviation_nats:.4f} nats, {fit.freedom} degrees of freedom")
    weighed = [fit.difference(comparison.arm, comparison.against) for comparison in secondary]
    adjusted = holm([p for _, _, p in weighed])
    for comparison, (mean, half, _), p in zip(secondary, weighed, adjusted, strict=True):
        print(f"secondary: {_names(comparison)} {mean:+.4f} +- {half:.4f} nats, p {p:.4f} (Holm)")


def nats_of(arm: Arm, rate: float, rows: Sequence[Row]) -> dict[int, float]:
    """Test nats by fresh seed."""
    return {
        int(row["seed"]): float(row["test_nats"])
        for row in rows_of_arm(arm, rows)
        if float(row["lr"]) == rate and int(row["seed"]) in arm.seeds
    }


def arm_line(
    arm: Arm,
    rate: float,
    nats: Mapping[int, float],
    reference: Mapping[int, float],
    times: Mapping[str, Any],
    first: str,
) -> str:
    """An arm's mean test nats, what it is beside the first arm, and its costs."""
    shared = sorted(nats.keys() & reference.keys())
    less = [nats[seed] - reference[seed] for seed in shared]
    words = f"{arm.name:32} {arm.layout:13} lr {rate:g}  n {len(nats)}"
    words += f"  {np.mean([*nats.values()]):.4f} nats" if nats else "  not trained"
    if less and arm.name != first:
        half = f" +- {paired_interval(less)[1]:.4f}" if len(less) > 1 else ""
        words += f"  {np.mean(less):+.4f}{half}"
    for workload in times.keys() & set(WORKLOADS):
        ms = times[workload]["median_ms"]
        if arm.name in ms:
            words += f"  {workload} {ms[arm.name] / ms[first]:.3f}x"
    return words


def primary_line(comparison: Comparison, nats: Mapping[str, Mapping[int, float]]) -> str:
    """The verdict of a paired comparison over the seeds that both have."""
    ones, (other,) = nats[comparison.arm], comparison.against
    less = [ones[seed] - nats[other][seed] for seed in sorted(ones.keys() & nats[other].keys())]
    mean, half = paired_interval(less)
    head = f"primary: {_names(comparison)} {mean:+.4f} +- {half:.4f} nats over {len(less)} seeds"
    if comparison.margin_nats is None:
        return f"{head}: {'better' if mean + half < 0 else 'not shown to be better'}"
    error = np.std(less, ddof=1) / math.sqrt(len(less))
    bound = mean + float(stats.t.ppf(0.95, len(less) - 1)) * float(error)
    kept = "not worse by" if bound < comparison.margin_nats else "not shown to be within"
    return f"{head}; one-sided bound {bound:+.4f}: {kept} {comparison.margin_nats} nats"


def _names(comparison: Comparison) -> str:
    others = comparison.against
    mean = f"the mean of {len(others)} ({others[0]} to {others[-1]})"
    return f"{comparison.arm} less {others[0] if len(others) == 1 else mean}"


if __name__ == "__main__":
    sys.exit(main())
