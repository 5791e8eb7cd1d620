"""The derived layout against its opponents: same steps, same text, same seeds."""

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path

from model import load_model
from nas.costs.latency import Busy
from nas.statistics.intervals import verdict
from pipeline.caveats import blind_caveats
from pipeline.comparison_rows import COLUMNS, intervals_of, reference_of, rows_of, saved
from pipeline.conditions import unlike_conditions
from pipeline.contest import equal_cost
from pipeline.contestants import Contestant
from pipeline.context import RunPlan, as_saved
from pipeline.costs import measurement_of, time_models
from pipeline.experiment import dump_experiment
from pipeline.jobs import Countdown, Job, run_all
from pipeline.reports import drawn
from pipeline.retrain import finish_retrain, retrain_trainer
from pipeline.run_files import check_validations, read_result
from training.signals import StopRequest
from utils.files import csv_of, write_whole
from utils.screen import announce, say

_TRAIN_STEP = "train_step"
EXPERIMENT = "comparison.yaml"


def train_contestants(plan: RunPlan, entries: Sequence[Contestant]) -> None:
    """Train every architecture with every seed, as retrain.py does it, and raise what it does."""
    shown = set[str]()
    trainings = [
        (plan.with_seed(seed), entry) for seed in plan.experiment.compare.seeds for entry in entries
    ]
    is_new = [not _result_path(*training).exists() for training in trainings]
    countdown = Countdown(sum(is_new))
    for number, ((seeded, entry), new) in enumerate(zip(trainings, is_new, strict=True), start=1):
        architecture = entry.architecture
        with closing(retrain_trainer(seeded, architecture)) as trainer:
            trainer.open()
            begins = not trainer.state.step
            done = ", which is done" if trainer.state.step >= trainer.steps else ""
            name = f"{architecture.name}, seed {seeded.seed}"
            announce(f"training {number} of {len(trainings)}: {name}{done}")
            trainer.run(seeded.experiment.run, shown)
            if begins:
                shown |= set(trainer.summary.splitlines())
            finish_retrain(seeded, trainer, architecture)
        if new:
            announce(countdown.line(f"trained {name}"))


def train_in_processes(
    plan: RunPlan, entries: Sequence[Contestant], *, jobs: int, stop: StopRequest
) -> None:
    """Train what is not done, so many at a time, each by retrain.py with its share of the cores.

    Raises:
        ValueError: a training failed; those that had begun have gone on to their end.
        Stopped: a signal came; every training has saved its state.
    """
    trainings = [
        _training(plan.with_seed(seed), entry)
        for seed in plan.experiment.compare.seeds
        for entry in entries
        if not _result_path(plan.with_seed(seed), entry).exists()
    ]
    if trainings:
        announce(f"training {len(trainings)} models, {jobs} at a time; each says more in its log")
        countdown = Countdown(len(trainings), jobs)
        run_all(
            trainings,
            workers=jobs,
            stop=stop,
            done=lambda job: announce(countdown.line(f"trained {job.name}")),
            option="--jobs",
        )


def _training(plan: RunPlan, entry: Contestant) -> Job:
    name = entry.architecture.name
    # The chosen one's file is RUN/architecture.json; architectures/ may hold another of its name.
    is_chosen = entry.role in ("searched", "chosen")
    file = Path("architecture.json" if is_chosen else f"architectures/{name}.json")
    return Job(
        f"{name}, seed {plan.seed}",
        as_saved(plan.experiment),
        ("retrain",),
        plan.run_dir / "jobs" / name / f"seed-{plan.seed}",
        ("--run", str(plan.run_dir), "--architecture", str(plan.run_dir / file)),
    )


def _result_path(plan: RunPlan, entry: Contestant) -> Path:
    return plan.retrain_folder(entry.architecture.name) / "result.json"


def finish_comparison(plan: RunPlan, entries: Sequence[Contestant]) -> None:
    """Measure latencies, write table and verdict, make the report, print it all."""
    from report.comparison import read_comparison, text_table

    plans = [plan.with_seed(seed) for seed in plan.experiment.compare.seeds]
    results = {
        entry.architecture.name: [read_result(_result_path(seeded, entry)) for seeded in plans]
        for entry in entries
    }
    check_validations(results)
    if unlike := unlike_conditions(
        {name: [seeded.retrain_folder(name) for seeded in plans] for name in results}
    ):
        entries[0].remark(unlike)
    for one in (entry.architecture for entry in entries):
        for warning in blind_caveats(one.slots, one.options):
            entries[0].remark(f"{one.name}: {warning}")
    models = {name: load_model(plans[0].retrain_folder(name) / "model") for name in results}
    latencies = time_models(plan, models, trained=True)
    if learnt := list(dict.fromkeys(chain(*(model.may_cost_more for model in models.values())))):
        entries[0].remark(
            f"FLOPs count {' and '.join(learnt)} at the whole span; latency is of what was learnt"
        )
    rows = rows_of(entries, results, latencies.median_ms, _train_step_ms(plan, entries))
    reference = rows[reference_of(entries)]
    nats = {
        name: [result["test"]["nats_per_token"] for result in of_seeds]
        for name, of_seeds in results.items()
    }
    name, others = rows[0]["name"], {row["name"]: nats[row["name"]] for row in rows[1:]}
    lines = [*verdict(name, nats[name], others), *saved(rows, reference, nats)]
    table = {
        "verdict": "\n".join(lines),
        "reference": reference["name"],
        "remarks": [remark for entry in entries for remark in entry.remarks],
        "latency_note": latencies.note,
        "latency_key": latencies.key,
        "latency_interval_ms": latencies.interval_ms,
        "intervals": intervals_of(name, nats),
        "rows": rows,
        "results": results,
    }
    write_whole(plan.run_dir / EXPERIMENT, dump_experiment(as_saved(plan.experiment)))
    write_whole(plan.run_dir / "comparison.csv", csv_of(rows, COLUMNS))
    write_whole(plan.run_dir / "comparison.json", json.dumps(table, indent=1) + "\n")
    announce("drawing the report")
    page = drawn("report.page:write_report", plan.run_dir)
    print("\n" + text_table(read_comparison(plan.run_dir)))
    if page is not None:
        print(f"report: {page}")


def _train_step_ms(plan: RunPlan, entries: Sequence[Contestant]) -> Mapping[str, float]:
    """The time of a step of training, where that is what the opponents share with the chosen one.

    Only there: all networks and their optimisers must fit the memory at once.
    """
    if equal_cost(plan, entries[0].architecture) != _TRAIN_STEP:
        return {}
    say(f"measuring a step of training of {len(entries)} models in turn")
    layouts = {entry.architecture.name: entry.architecture.slots for entry in entries}
    try:
        return measurement_of(plan).times_ms(_TRAIN_STEP, layouts)
    except Busy as error:
        say(f"steps of training: not measured: {error}")
        return {}
