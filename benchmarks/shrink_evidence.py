"""What shrinking a trained model is worth beside simple rules and beside training anew.

Of every parent: `derive.py --method shrink` and `compare.py` with rules that drop blocks, as
docs/shrinking.md has it, and with the whole parent, which takes the steps of recovery as well; then
the layouts of --anew from scratch, for the steps of the recovery and for the parent's and those
together, and those of --anew-taught with the teacher. What is made already is not made again.

    python -m benchmarks.shrink_evidence train FILE.yaml --parents FOLDER ... --csv FILE
    python -m benchmarks.shrink_evidence report --csv FILE

report: means over parents of test nats less the parent's, and of the chosen subset's less these,
with 95% intervals of the paired differences; mean nats of tokens that can be copied
(benchmarks/copying.py).
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from benchmarks.copying import GROUPS, groups_of, nats_by_group, training_of
from benchmarks.keys import claim_key, key_of
from benchmarks.layout_rows import Commands, Row, rows_of
from model import load_architecture, load_model
from nas.baselines import PARENT
from nas.statistics.intervals import paired_interval
from pipeline import cli
from pipeline.baselines import entries_of
from pipeline.experiment import Experiment, dump_experiment, load_experiment, with_settings
from pipeline.jobs import Job, layout_job, run_all, training_result
from pipeline.plan import RunPlan, set_up
from training.signals import StopRequest
from utils.files import csv_of, read_object, write_whole

NATS = ("rare_nats", "common_nats", "others_nats")
COLUMNS = ("parent", "way", "layout", "steps", "latency", "valid_nats", "test_nats", *NATS)
RULES = ("drop_last", "drop_cosine", "drop_prices", "drop_random")
# The parent's own layout: it takes the steps of recovery too.
WHOLE = "layout"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    commands = Commands(__doc__, train=train, report=report)
    commands.add_experiment("train", "runs/shrink-evidence")
    one = commands.named["train"]
    one.add_argument("--parents", nargs="+", type=Path, required=True, metavar="FOLDER")
    one.add_argument("--budget", default="0.65x", help="of the parent's latency")
    said = "layouts trained from scratch too; chosen: the subset"
    one.add_argument("--anew", nargs="*", default=[], metavar="LAYOUT", help=said)
    said = "the same with the teacher"
    one.add_argument("--anew-taught", nargs="*", default=[], metavar="LAYOUT", help=said)
    one.add_argument("--anew-lr", type=float, help="their learning rate (default: the recovery's)")
    one.add_argument("--workers", type=cli.number_from(1), default=1, metavar="N")
    for each in commands.named.values():
        each.add_argument("--csv", type=Path, required=True)
    return commands.run(argv)


def train(arguments: argparse.Namespace) -> None:
    """Shrink and compare for every parent, then train anew for every one; rows as each is done."""
    base = load_experiment(arguments.experiment, arguments.set)
    inputs = set_up(base, arguments.run).inputs()
    # What base.derive says of shrinking itself stands in no other key.
    how = {"budget": arguments.budget, "shrink": base.derive.shrink.model_dump()}
    key_file = arguments.csv.with_suffix(".json")
    claim_key(key_file, key_of(base, inputs) | how, "give another --csv")
    rows, stop = rows_of(arguments.csv), StopRequest()
    parents = dict[str, tuple[Experiment, Path]]()
    for parent in arguments.parents:
        seed = str(training_of(parent)["seed"])
        experiment = of_parent(base, parent, arguments.budget)
        run = arguments.run / f"parent-{seed}"
        # What is there is not made again, and does not show its budget.
        claim_key(run.with_suffix(".json"), key_of(experiment, inputs) | how)
        parents[seed] = experiment, run
        if not any(row["parent"] == seed for row in rows):
            shrink(experiment, run, arguments.workers)
            rows += [{"parent": seed} | row for row in compared_rows(experiment, run)]
            write_whole(arguments.csv, csv_of(rows, COLUMNS))
    for seed, (experiment, run) in parents.items():
        made = {row["way"]: row["layout"] for row in rows if row["parent"] == seed}
        layouts = [*product(arguments.anew, [False]), *product(arguments.anew_taught, [True])]
        jobs = anew_jobs(experiment, run, layouts, made["chosen"], arguments.anew_lr)
        jobs = {way: job for way, job in jobs.items() if way not in made}
        with stop.listening():
            missing = [job for job in jobs.values() if training_result(job) is None]
            run_all(missing, workers=arguments.workers, stop=stop, done=lambda job: print(job.name))
        rows += [{"parent": seed} | row for row in anew_rows(experiment, run, jobs)]
        write_whole(arguments.csv, csv_of(rows, COLUMNS))


def of_parent(base: Experiment, parent: Path, budget: str) -> Experiment:
    """The experiment that shrinks a parent, with the parent's seed."""
    seed = training_of(parent)["seed"]
    letters = load_architecture(parent / "architecture.json").letters()
    settings = {
        "run.seed": seed,
        "derive.method": "shrink",
        "derive.budget": {"latency": budget},
        "derive.layout": letters,
        "retrain.start": str(parent.absolute()),
        "retrain.teacher": str(parent.absolute()),
        "compare.baselines": [PARENT, WHOLE, *RULES],
        "compare.random_layouts": 4,
        "compare.seeds": [seed],
    }
    return with_settings(base, settings)


def shrink(experiment: Experiment, run: Path, workers: int) -> None:
    """Derive, recover and compare by the commands of the page."""
    run.mkdir(parents=True, exist_ok=True)
    write_whole(file := run.with_suffix(".yaml"), dump_experiment(experiment))
    for script, done in (("derive", "architecture.json"), ("compare", "comparison.json")):
        if not (run / done).exists():
            how = [str(file), "--run", str(run), "--workers", str(workers)]
            if code := subprocess.run([sys.executable, f"{script}.py", *how]).returncode:
                raise ValueError(f"{script}.py {file}: exit code {code}; start this again")


def anew_jobs(
    experiment: Experiment,
    run: Path,
    layouts: Sequence[tuple[str, bool]],
    chosen: str,
    lr: float | None,
) -> dict[str, Job]:
    """Trainings of layouts, with the teacher or not, without the parent's weights, by their names.

    `chosen` is the layout that goes by this name.
    """
    steps = experiment.retrain.steps
    whole = training_of(Path(str(experiment.retrain.start)))["steps"]
    assert steps is not None
    rate = experiment.retrain.optimiser.lr if lr is None else lr
    jobs = dict[str, Job]()
    for (layout, taught), count in product(layouts, (steps, whole + steps)):
        alone = ["retrain.start", *([] if taught else ["retrain.teacher"])]
        settings = {"retrain.steps": count, "retrain.optimiser.lr": rate}
        own = with_settings(experiment, settings, alone)
        folder = run / "anew" / f"{count}-{'taught' if taught else 'labels'}-lr-{rate}"
        letters = (chosen if layout == "chosen" else layout).ljust(experiment.model.n_blocks, "i")
        way = f"{layout} anew, {count} steps{', taught' if taught else ''}"
        jobs[way] = layout_job(own, letters, experiment.run.seed, folder)
    return jobs


def compared_rows(experiment: Experiment, run: Path) -> Iterator[Row]:
    """A row of the parent, and of every subset by each of its ways."""
    plan = set_up(experiment, run)
    row = Measure(plan)
    compared = read_object(run / "comparison.json")
    latency = {one["name"]: one["relative_latency"] for one in compared["rows"]}
    # Of the parent too on the texts of this experiment.
    results = compared["results"]
    for entry in entries_of(plan):
        name = entry.architecture.name
        model = plan.retrain_folder(name) / "model"
        if entry.role == PARENT:
            name, model = PARENT, Path(str(experiment.retrain.start))
        for way in [*(["chosen"] if entry.role == "chosen" else []), *entry.kinds]:
            yield row.of("whole" if way == WHOLE else way, model, results[name][0], latency[name])


def anew_rows(experiment: Experiment, run: Path, jobs: Mapping[str, Job]) -> Iterator[Row]:
    """A row of what every job trained."""
    row = Measure(set_up(experiment, run))
    for way, job in jobs.items():
        path = training_result(job)
        assert path is not None, job.folder
        yield row.of(way, path.parent / "model", {}, "")


class Measure:
    """Rows of models, with their nats on the test text's tokens of every group."""

    def __init__(self, plan: RunPlan) -> None:
        self._streams = plan.streams("test")
        train_N, window = np.asarray(plan.prepared.tokens["train"]), plan.experiment.model.memory
        self._group_BT = groups_of(self._streams, train_N.astype(np.int64), window)

    def of(self, way: str, model: Path, found: Mapping[str, Any], latency: object) -> Row:
        """The row of one model; what was found elsewhere counts more than its own result."""
        result = {**training_of(model), **found}
        nats = nats_by_group(load_model(model), self._streams, self._group_BT)
        letters = load_architecture(model / "architecture.json").letters().replace(" ", "")
        scores = [result[split]["nats_per_token"] for split in ("valid", "test")]
        values = [way, letters, result["steps"], latency, *scores, *nats]
        return dict(zip(COLUMNS[1:], map(str, values), strict=True))


def report(arguments: argparse.Namespace) -> None:
    """Print the table."""
    print("\n".join(report_lines(rows_of(arguments.csv))))


def report_lines(rows: Sequence[Row]) -> Iterator[str]:
    """A line for every way; one that a parent has several of counts with its mean."""
    yield "| way | test nats | less the parent's | chosen less it | " + " | ".join(GROUPS) + " |"
    yield "|---|---|---|---|" + "---|" * len(GROUPS)

    def nats(way: str, column: str = "test_nats") -> dict[str, float]:
        of_way = [row for row in rows if row["way"] == way]
        parents = dict.fromkeys(row["parent"] for row in of_way)
        return {
            one: fmean(float(row[column]) for row in of_way if row["parent"] == one)
            for one in parents
        }

    def less(one: str, other: str) -> str:
        both = [nats(one), nats(other)]
        found = [both[0][parent] - both[1][parent] for parent in both[0].keys() & both[1].keys()]
        half = f" +- {paired_interval(found)[1]:.4f}" if len(found) > 1 else ""
        return "" if one == other else f"{fmean(found):+.4f}{half}"

    for way in dict.fromkeys(row["way"] for row in rows):
        test = fmean(nats(way).values())
        groups = " | ".join(f"{fmean(nats(way, column).values()):.4f}" for column in NATS)
        yield f"| {way} | {test:.4f} | {less(way, PARENT)} | {less('chosen', way)} | {groups} |"


if __name__ == "__main__":
    sys.exit(main())
