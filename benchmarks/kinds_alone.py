"""What each kind of block is worth in the place of attention, or of a dense block.

Layouts `aaaddd` and `adadad` at the size of benchmarks/six_blocks.yaml, as they are and with
another kind in the place of every attention slot; kinds that read no other token take the place of
every dense slot. All have the experiment's learning rate. What is trained is not trained again.

    python -m benchmarks.kinds_alone train --csv FILE --workers 2
    python -m benchmarks.kinds_alone time --json FILE
    python -m benchmarks.kinds_alone report --csv FILE [--times FILE]

report: of each layout nats of validation and test, what they are above those of the layout it
departs from (paired over seeds, with the 95% interval of Student's t), FLOPs, and latencies as
multiples of it.
"""

import argparse
import json
import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.layout_rows import (
    FIGURES,
    WORKLOADS,
    Commands,
    Row,
    claim,
    rows_of,
    train_rows,
    write_times,
)
from model import BLOCKS, parse_layout
from nas.statistics.intervals import paired_interval
from pipeline import cli
from pipeline.costs import cost_model
from pipeline.experiment import Experiment, load_experiment
from pipeline.jobs import layout_job
from pipeline.plan import set_up
from training.signals import StopRequest
from utils.files import read_object

BASES = ("aaaddd", "adadad")
SEEDS = (0, 1, 2)
# Not the defaults: as many keys as attention reads in the mean, as many products as dense has.
OPTIONS: dict[str, dict[str, Any]] = {
    "adaptive_span": {"span": 96},
    "mixture_of_experts": {"d_ffn": 256, "k": 2},
}
COLUMNS = ("base", "kind", "layout", "seed", *FIGURES)


@dataclass(frozen=True)
class Entry:
    """A layout with one kind in the place of another; of `base` itself the kind is empty."""

    base: str
    kind: str
    layout: str


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    commands = Commands(__doc__, train=train, time=time, report=report)
    for name, one in commands.named.items():
        one.add_argument("--bases", nargs="+", default=list(BASES), metavar="LAYOUT")
        if name != "report":
            one.add_argument("--experiment", type=Path, default=Path("benchmarks/six_blocks.yaml"))
            one.add_argument("--set", action="append", default=[], help="override one key")
            one.add_argument("--run", type=Path, default=Path("runs/kinds-alone"))
        if name != "time":
            one.add_argument("--csv", type=Path, required=True, help="a row for each training")
        if name == "train":
            cli.add_seeds(one, "seeds of the trainings", SEEDS)
    commands.add_files_of_stages()
    return commands.run(argv)


def entries(bases: Sequence[str]) -> list[Entry]:
    """Every base and then what departs from it: kinds for attention, then kinds for dense."""
    found = []
    for base in bases:
        found.append(Entry(base, "", base))
        for place in ("attention", "dense"):
            for kind in kinds_in_place_of(place):
                layout = base.replace(BLOCKS[place].letter, BLOCKS[kind].letter)
                found.append(Entry(base, kind, layout))
    return found


def kinds_in_place_of(place: str) -> list[str]:
    """The other kinds that mix tokens as it does, or mix none and add something."""
    return [
        name
        for name, kind in BLOCKS.items()
        if kind.mixes_tokens == BLOCKS[place].mixes_tokens
        and name != place
        and not kind.adds_nothing
    ]


def experiment_of(file: Path, settings: Sequence[str]) -> Experiment:
    """The experiment with every kind among its candidates."""
    kinds = [{"kind": kind, "label": kind, **OPTIONS.get(kind, {})} for kind in BLOCKS]
    return load_experiment(file, [f"model.candidates={json.dumps(kinds)}", *settings])


def train(arguments: argparse.Namespace) -> None:
    """Train what has no row yet; a row is written as soon as a training ends."""
    experiment = experiment_of(arguments.experiment, arguments.set)
    claim(arguments.csv, set_up(experiment, arguments.run))
    done = {(row["layout"], row["seed"]) for row in rows_of(arguments.csv)}
    wanted = [
        (
            layout_job(experiment, entry.layout, seed, arguments.run),
            {**vars(entry), "seed": str(seed)},
        )
        for seed in arguments.seeds
        for entry in entries(arguments.bases)
        if (entry.layout, str(seed)) not in done
    ]
    stop = StopRequest()
    with stop.listening():
        train_rows(arguments.csv, COLUMNS, wanted, workers=arguments.workers, stop=stop)


def time(arguments: argparse.Namespace) -> None:
    """Measure the latency and a training step of every layout, in turn, and write the medians."""
    plan = set_up(experiment_of(arguments.experiment, arguments.set), arguments.run)
    measurement = cost_model(plan)
    models = {
        entry.layout: measurement.build(parse_layout(entry.layout, plan.candidates))
        for entry in entries(arguments.bases)
    }
    write_times(arguments.json, measurement, models)


def report(arguments: argparse.Namespace) -> None:
    """Print the table."""
    times = read_object(arguments.times) if arguments.times else {}
    print("\n".join(lines_of(rows_of(arguments.csv), arguments.bases, times)))


def lines_of(rows: Sequence[Row], bases: Sequence[str], times: Mapping[str, Any]) -> list[str]:
    """The lines of the table, a group for each base."""
    head = f"{'layout':8}{'in place':20}{'n':>2}{'valid':>9}{'test':>9}{'less the base':>20}"
    lines = []
    for base in bases:
        lines.append(head + f"{'MFLOP':>8}" + "".join(f"{name:>12}" for name in WORKLOADS))
        reference = nats_of(rows, base)
        for entry in entries([base]):
            nats = nats_of(rows, entry.layout)
            words = f"{entry.layout:8}{entry.kind or 'attention, dense':20}{len(nats):2}"
            if not nats:
                lines.append(f"{words}  not trained")
                continue
            valid, test = (statistics.fmean(pair[k] for pair in nats.values()) for k in (0, 1))
            flops = next(row for row in rows if row["layout"] == entry.layout)["flops_per_token"]
            words += f"{valid:9.4f}{test:9.4f}{less(nats, reference) if entry.kind else '':>20}"
            words += f"{float(flops) / 1e6:8.3f}" if flops else f"{'-':>8}"
            lines.append(words + "".join(_times(times, name, entry) for name in WORKLOADS))
    return lines


def nats_of(rows: Sequence[Row], layout: str) -> dict[str, tuple[float, float]]:
    """Nats of validation and test by seed; infinite where a training diverged."""
    return {
        row["seed"]: (float(row["valid_nats"]), float(row["test_nats"]))
        for row in rows
        if row["layout"] == layout
    }


def less(
    nats: Mapping[str, tuple[float, float]], reference: Mapping[str, tuple[float, float]]
) -> str:
    """Test nats above the reference's over the seeds of both: mean and half of the interval."""
    shared = sorted(nats.keys() & reference.keys())
    differences = [nats[seed][1] - reference[seed][1] for seed in shared]
    if not differences or not all(map(math.isfinite, differences)):
        return "diverged" if differences else "-"
    if len(differences) == 1:
        return f"{differences[0]:+.4f} (n = 1)"
    mean, half = paired_interval(differences)
    return f"{mean:+.4f} +- {half:.4f}"


def _times(times: Mapping[str, Any], workload: str, entry: Entry) -> str:
    ms = times.get(workload, {}).get("median_ms", {})
    if entry.layout not in ms or entry.base not in ms:
        return f"{'-':>12}"
    return f"{ms[entry.layout] / ms[entry.base]:11.3f}x"


if __name__ == "__main__":
    sys.exit(main())
