"""The comparison: every layout trained with every seed, its rows, verdict and report."""

import json
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any

from model import load_model
from nas.costs.latency import Unsteady
from nas.opponents import is_equal
from nas.statistics.intervals import at_cost, paired_differences, paired_interval, verdict
from pipeline.costs import cost_model, time_models
from pipeline.derive import blind_caveats
from pipeline.experiment import dump_experiment
from pipeline.jobs import Countdown, Job, run_all
from pipeline.opponents import Contestant, equal_cost
from pipeline.plan import RunPlan
from pipeline.retrain import finish_retrain, retrain_trainer
from pipeline.run_files import check_validations, read_result
from pipeline.summary import drawn
from training.evaluation import Evaluation
from training.run_dir import WORDS
from training.signals import StopRequest
from utils.files import csv_of, read_object, write_whole
from utils.screen import announce, say

# Where one of these is another, equality cannot be expected.
FACTS = ("commit", "torch", "numpy", "sentencepiece", "processor", "device", "threads", "ranks")
# Settings outside a phase's identity, which change last digits or what dropout drops.
SETTINGS = ("micro_batches", "attention", "compile")


def facts_in(environment: Mapping[str, Any], names: Iterable[str] = FACTS) -> dict[str, str]:
    """Facts of an environment.json, as text."""
    known = {**environment.get("packages", {}), **environment}
    return {name: str(known.get(name, "not recorded")) for name in names}


def unlike_conditions(trainings: Mapping[str, Sequence[Path]]) -> str:
    """One line that says how the conditions of trainings differ, and whose are which; or nothing.

    `trainings` are the folders of each row, one for each seed.
    """
    found = list[str]()
    environments = {
        f"{row} {folder.name}": read_object(folder / "environment.json")
        for row, folders in trainings.items()
        for folder in folders
    }
    for name in (*FACTS, *SETTINGS):
        who = dict[str, list[str]]()
        for label, environment in environments.items():
            who.setdefault(_condition(environment, name), []).append(label)
        *others, commonest = sorted(who, key=lambda value: len(who[value]))
        if others:
            shown = [f"{value} ({', '.join(who[value])})" for value in others]
            shown.append(f"{commonest} (the others)")
            found.append(f"{WORDS.get(name, name)} {', '.join(shown)}")
    return f"not trained under equal conditions: {'; '.join(found)}" if found else ""


def _condition(environment: Mapping[str, Any], name: str) -> str:
    """A fact of a start, and of each time that the training went on with another, for a person."""
    times = [{}, *environment.get("resumed", [])]
    values = [facts_in({**environment, **one}, [name])[name] for one in times]
    # Of a commit the beginning, with what follows its digits.
    short = [re.sub(r"^([0-9a-f]{12})[0-9a-f]{28}\b", r"\1", value) for value in values]
    return " then ".join("unknown" if value == "None" else value for value in dict.fromkeys(short))


Row = dict[str, Any]
Results = Sequence[Mapping[str, Any]]
# What a row may have as much of as the chosen layout, by the word in the column `equal`.
_EQUALS = {
    "parameters": "parameters",
    "FLOPs": "flops_per_token",
    "latency": "latency_ms",
    "training": "train_step_ms",
}


def rows_of(
    entries: Sequence[Contestant],
    results: Mapping[str, Results],
    latency_ms: Mapping[str, float],
    train_step_ms: Mapping[str, float],
) -> list[Row]:
    """One row for each contestant, the chosen layout first.

    Means over seeds of nats; perplexity is exp of the mean nats.
    """
    rows = list[Row]()
    for entry in entries:
        name, found = entry.architecture.name, results[entry.architecture.name]
        test, nats = found[0]["test"], _mean_nats(found, "test")
        sizes = {"bytes": test["bytes"], "words": test.get("words")}
        total = Evaluation(nats=nats * test["tokens"], tokens=test["tokens"], **sizes)
        rows.append(
            {
                "name": name,
                "role": entry.role,
                "layout": entry.architecture.letters(),
                "n": len(found),
                "parameters": found[0]["parameters"],
                "flops_per_token": found[0]["flops_per_token"],
                "latency_ms": latency_ms.get(name),
                "train_step_ms": train_step_ms.get(name),
                "relative_latency": None,
                "nats_per_token": nats,
                "perplexity": total.perplexity,
                "relative_perplexity": None,
                "bits_per_byte": total.bits_per_byte,
                "word_perplexity": total.word_perplexity,
                "valid_nats_per_token": _mean_nats(found, "valid"),
                "equal": None,
            }
        )
    base, chosen = rows[reference_of(entries)], rows[0]
    for row in rows:
        row["relative_latency"] = _times(row, base, "latency_ms")
        row["relative_perplexity"] = _times(row, base, "perplexity")
        shares = {word: _times(row, chosen, key) for word, key in _EQUALS.items()}
        equal = (word for word, share in shares.items() if share is not None and is_equal(share))
        row["equal"] = " ".join(equal)
    return rows


def _mean_nats(results: Results, split: str) -> float:
    return statistics.fmean(result[split]["nats_per_token"] for result in results)


def _times(row: Row, base: Row, key: str) -> float | None:
    return None if None in (row[key], base[key]) else row[key] / base[key]


def reference_of(entries: Sequence[Contestant]) -> int:
    """The place of the row that others are multiples of: `interleaved`, or else the first one."""
    places = (at for at, entry in enumerate(entries) if "interleaved" in entry.kinds)
    return next(places, 0)


def saved(rows: Sequence[Row], reference: Row, nats: Mapping[str, Sequence[float]]) -> list[str]:
    """What the chosen layout costs and gives up beside the reference; none where that is itself.

    By latency, or where none was measured by FLOPs.
    """
    chosen, name, key = rows[0], "latency", "latency_ms"
    if chosen["name"] == reference["name"]:
        return []
    if chosen[key] is None or reference[key] is None:
        name, key = "FLOPs", "flops_per_token"
    share = chosen[key] / reference[key]
    ones, others = nats[chosen["name"]], nats[reference["name"]]
    return [at_cost(share, name, reference["name"], ones, others)]


def intervals_of(chosen: str, nats: Mapping[str, Sequence[float]]) -> dict[str, dict[str, Any]]:
    """95% intervals over the seeds, and what is shown, by layout; nothing of a single seed.

    `nats_per_token`: of the mean, as [low, high]. Of all but the chosen layout also
    `chosen_less_it`: the chosen layout's nats less this one's, paired by seed, as [mean, low,
    high]; `p`: of that difference, by Holm's method over all of them; and by it `shown`: what the
    chosen layout is beside this one, `better`, `worse` or `nothing`.
    """
    if len(nats[chosen]) < 2:
        return {}
    intervals = dict[str, dict[str, Any]]()
    for name, of_seeds in nats.items():
        mean, half = paired_interval(of_seeds)
        intervals[name] = {"nats_per_token": [mean - half, mean + half]}
    others = {name: of_seeds for name, of_seeds in nats.items() if name != chosen}
    for name, found in paired_differences(nats[chosen], others).items():
        less = [found.mean, *found.interval]
        intervals[name] |= {"chosen_less_it": less, "p": found.p, "shown": found.shown}
    return intervals


_TRAIN_STEP = "train_step"
EXPERIMENT = "comparison.yaml"


def _trainings(plan: RunPlan, entries: Sequence[Contestant]) -> list[tuple[RunPlan, Contestant]]:
    seeds = plan.experiment.compare.seeds
    return [(plan.with_seed(seed), entry) for seed in seeds for entry in entries]


def train_contestants(plan: RunPlan, entries: Sequence[Contestant]) -> None:
    """Train every architecture with every seed, as retrain.py does it, and raise what it does."""
    shown, trainings = set[str](), _trainings(plan, entries)
    is_new = [not _result_path(*training).exists() for training in trainings]
    countdown = Countdown(sum(is_new))
    for number, ((seeded, entry), new) in enumerate(zip(trainings, is_new, strict=True), start=1):
        with closing(retrain_trainer(seeded, entry.architecture)) as trainer:
            trainer.open()
            begins = not trainer.state.step
            done = ", which is done" if trainer.state.step >= trainer.steps else ""
            name = f"{entry.architecture.name}, seed {seeded.seed}"
            announce(f"training {number} of {len(trainings)}: {name}{done}")
            trainer.run(seeded.experiment.run, shown)
            if begins:
                shown |= set(trainer.summary.splitlines())
            finish_retrain(seeded, trainer, entry.architecture)
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
        _job(*training)
        for training in _trainings(plan, entries)
        if not _result_path(*training).exists()
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


def _job(plan: RunPlan, entry: Contestant) -> Job:
    name, run = entry.architecture.name, plan.run_dir
    # The chosen one's file is RUN/architecture.json; architectures/ may hold another of its name.
    is_chosen = entry.role in ("searched", "chosen")
    file = run / ("architecture.json" if is_chosen else f"architectures/{name}.json")
    arguments = ("--run", str(run), "--architecture", str(file))
    log = run / "jobs" / name / f"seed-{plan.seed}"
    return Job(f"{name}, seed {plan.seed}", plan.experiment, ("retrain",), log, arguments)


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
    write_whole(plan.run_dir / EXPERIMENT, dump_experiment(plan.experiment))
    write_whole(plan.run_dir / "comparison.csv", csv_of(rows, list(rows[0])))
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
        return cost_model(plan).times_ms(_TRAIN_STEP, layouts)
    except Unsteady as error:
        say(f"steps of training: not measured: {error}")
        return {}
