"""Layouts, each trained with every seed, in one table with what may be said of the chosen one."""

import json
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from model import LanguageModel, layout_letters, load_model
from nas.baselines import PARENT, is_equal
from nas.costs.latency import Latencies
from nas.statistics.intervals import change_words, paired_differences, paired_interval, verdict
from pipeline.architectures import blind_caveats
from pipeline.baselines import Entry, parent_model, to_train
from pipeline.costs import time_models
from pipeline.plan import RunPlan
from pipeline.retrain import retrain_all
from training.evaluation import Evaluation
from training.run_dir import WORDS
from training.signals import Diverged
from utils.files import csv_of, read_object, write_whole
from utils.screen import announce
from utils.text import given_words, layout_title

# Where one of these is another, equality cannot be expected.
FACTS = ("commit", "torch", "numpy", "sentencepiece", "processor", "device", "threads", "ranks")
# Settings outside a phase's identity, which change last digits or what dropout drops.
SETTINGS = ("micro_batches", "attention", "compile")


def facts_in(environment: Mapping[str, Any], names: Iterable[str] = FACTS) -> dict[str, str]:
    """Facts of an environment.json, as text."""
    known = {**environment.get("packages", {}), **environment}
    return {name: str(known.get(name, "not recorded")) for name in names}


def unlike_conditions(trainings: Mapping[str, Sequence[Path]]) -> str:
    """One line that says how the conditions of trainings differ, and in which rows; or nothing.

    `trainings` are the folders of each row, one for each seed.
    """
    rows_of_value: dict[str, dict[str, list[str]]] = {name: {} for name in (*FACTS, *SETTINGS)}
    for row, folders in trainings.items():
        for folder in folders:
            start = read_object(folder / "environment.json")
            for times in ({}, *start.get("resumed", [])):
                for name, value in facts_in({**start, **times}, rows_of_value).items():
                    rows = rows_of_value[name].setdefault(value, [])
                    rows += [row] * (row not in rows)
    found = [
        f"{WORDS.get(name, name)} "
        + ", ".join(f"{value} ({', '.join(rows)})" for value, rows in values.items())
        for name, values in rows_of_value.items()
        if len(values) > 1
    ]
    return f"not trained under equal conditions: {'; '.join(found)}" if found else ""


Row = dict[str, Any]
Results = Sequence[Mapping[str, Any]]
# What a row may have as much of as the chosen layout, by the word in the column `matched`.
_EQUALS = {"parameters": "parameters", "FLOPs": "flops_per_token", "latency": "latency_ms"}


def rows_of(
    entries: Sequence[Entry], results: Mapping[str, Results], latency_ms: Mapping[str, float]
) -> list[Row]:
    """One row for each entry, the chosen layout first.

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
                "title": layout_title([one.kind for one in entry.architecture.blocks], name),
                "layout": entry.architecture.letters(),
                "n": 1 if entry.role == PARENT else len(found),
                "parameters": found[0]["parameters"],
                "flops_per_token": found[0]["flops_per_token"],
                "latency_ms": latency_ms.get(name),
                "nats_per_token": nats,
                "perplexity": total.perplexity,
                "bits_per_byte": total.bits_per_byte,
                "word_perplexity": total.word_perplexity,
                "valid_nats_per_token": _mean_nats(found, "valid"),
            }
        )
    base, chosen = rows[reference_of(entries)], rows[0]
    for row in rows:
        row["relative_latency"] = _times(row, base, "latency_ms")
        row["relative_perplexity"] = _times(row, base, "perplexity")
        shares = {word: _times(row, chosen, key) for word, key in _EQUALS.items()}
        equal = (word for word, share in shares.items() if share is not None and is_equal(share))
        row["matched"] = " ".join(equal)
    return rows


def _mean_nats(results: Results, split: str) -> float:
    return statistics.fmean(result[split]["nats_per_token"] for result in results)


def _times(row: Row, base: Row, key: str) -> float | None:
    return None if None in (row[key], base[key]) else row[key] / base[key]


def reference_of(entries: Sequence[Entry]) -> int:
    """The place of the row that others are multiples of: parent, interleaved, else the first."""
    kinds = (PARENT, "interleaved")
    places = (at for kind in kinds for at, one in enumerate(entries) if kind in one.kinds)
    return next(places, 0)


def saved(rows: Sequence[Row], reference: Row, nats: Mapping[str, Sequence[float]]) -> str:
    """The chosen layout's latency, or FLOPs, and perplexity beside the reference's."""
    chosen, name, key = rows[0], "latency", "latency_ms"
    if chosen["name"] == reference["name"]:
        return ""
    if chosen[key] is None or reference[key] is None:
        name, key = "FLOPs", "flops_per_token"
    share = chosen[key] / reference[key]
    change = change_words(nats[chosen["name"]], nats[reference["name"]])
    return f"{chosen['title']}: at {share:.2f}x of {reference['name']}'s {name}, {change}"


def _after(results: Mapping[str, Results], chosen: str) -> str:
    """How long the child of a parent was trained, where that is known; else nothing."""
    tokens = results[PARENT][0]["tokens"] if PARENT in results else None
    share = results[chosen][0]["tokens"] / tokens if tokens else 0.0
    return f", after {share:.0%} more training, which the parent did not get" if share else ""


def intervals_of(chosen: str, nats: Mapping[str, Sequence[float]]) -> dict[str, dict[str, Any]]:
    """95% intervals over the seeds, and what is shown, by layout; nothing of a single seed.

    `nats_per_token` is [low, high] of the mean; `chosen_less_it` is [mean, low, high] of the chosen
    layout's nats less this one's, paired by seed; `p` is by Holm's method over all of them.
    """
    if len(nats[chosen]) < 2:
        return {}
    intervals = dict[str, dict[str, Any]]()
    for name, of_seeds in nats.items():
        mean, half = paired_interval(of_seeds)
        # A parent is one training, whatever the number of seeds.
        intervals[name] = {} if name == PARENT else {"nats_per_token": [mean - half, mean + half]}
    others = {name: of_seeds for name, of_seeds in nats.items() if name != chosen}
    for name, found in paired_differences(nats[chosen], others).items():
        less = [found.mean, *found.interval]
        intervals[name] |= {"chosen_less_it": less, "p": found.p, "shown": found.shown}
    return intervals


def train_entries(plan: RunPlan, entries: Sequence[Entry], workers: int = 1) -> None:
    """Train every architecture with every seed, as `retrain_all` does it."""
    plans = [plan.with_seed(seed) for seed in plan.experiment.compare.seeds]
    entries = to_train(entries)
    try:
        retrain_all([(seeded, one.architecture) for seeded in plans for one in entries], workers)
    except Diverged as error:
        raise Diverged(f"{error}; a baseline can be left out (compare.baselines)") from None


def finish_comparison(plan: RunPlan, entries: Sequence[Entry]) -> None:
    """Measure latencies, write table and verdict, make the report, print it all."""
    plans = [plan.with_seed(seed) for seed in plan.experiment.compare.seeds]
    names = [entry.architecture.name for entry in to_train(entries)]
    folders = {name: [seeded.retrain_folder(name) for seeded in plans] for name in names}
    results: dict[str, Results] = {
        name: [read_object(one / "result.json") for one in of] for name, of in folders.items()
    }
    models = {name: load_model(first / "model") for name, (first, *_) in folders.items()}
    if PARENT in plan.experiment.compare.baselines:
        models[PARENT], result = parent_model(plan)
        results[PARENT] = [result] * len(plans)
    for words in _remarks(entries, folders, results, models):
        entries[0].remark(words)
    table = _table(entries, results, time_models(plan, models, trained=True))
    rows = table["rows"]
    write_whole(plan.run_dir / "comparison.csv", csv_of(rows, list(rows[0])))
    write_whole(plan.run_dir / "comparison.json", json.dumps(table, indent=1) + "\n")
    announce("drawing the report")
    from report.comparison import read_comparison, text_table
    from report.page import write_report  # imports matplotlib

    page = write_report(plan.run_dir)
    print("\n" + text_table(read_comparison(plan.run_dir)))
    print(f"report: {page}")
    held = plan.run_dir / "model" / "result.json"
    if held.exists() and (other := read_object(held)["name"]) != rows[0]["name"]:
        print(f"{held.parent} holds {other}; for the chosen layout: retrain.py {plan.run_dir}")


def _remarks(
    entries: Sequence[Entry],
    folders: Mapping[str, Sequence[Path]],
    results: Mapping[str, Results],
    models: Mapping[str, LanguageModel],
) -> Iterator[str]:
    """What holds of the whole comparison."""
    if unlike := unlike_conditions(folders):
        yield unlike
    architectures = [entry.architecture for entry in entries]
    for words in given_words(results[architectures[0].name][0]):
        yield f"every layout {words}"
    for one in architectures:
        yield from (f"{one.name}: {warning}" for warning in blind_caveats(one.blocks, one.options))
    if PARENT in models:
        yield "parent: one model as it is, without the steps of recovery"
    if learnt := list(dict.fromkeys(chain(*(model.learnt_costs for model in models.values())))):
        yield f"FLOPs count {' and '.join(learnt)} at the whole span; latency is of what was learnt"


def _table(
    entries: Sequence[Entry], results: Mapping[str, Results], latencies: Latencies
) -> dict[str, Any]:
    """The content of comparison.json."""
    rows = rows_of(entries, results, latencies.median_ms)
    reference, name = rows[reference_of(entries)], rows[0]["name"]
    nats = {
        name: [result["test"]["nats_per_token"] for result in of_seeds]
        for name, of_seeds in results.items()
    }
    others = {row["name"]: nats[row["name"]] for row in rows[1:]}
    blocks = chain(*(entry.architecture.blocks for entry in entries))
    return {
        "saving": saved(rows, reference, nats) + _after(results, name),
        "verdict": "\n".join(verdict(nats[name], others)),
        "reference": reference["name"],
        "letters": {layout_letters([block]): block.kind for block in blocks},
        "remarks": [remark for entry in entries for remark in entry.remarks],
        "latency_note": latencies.note,
        "latency_key": latencies.key,
        "latency_interval_ms": latencies.interval_ms,
        "intervals": intervals_of(name, nats),
        "rows": rows,
        "results": results,
    }
