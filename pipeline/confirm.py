"""Two experiments, each searched, derived and retrained with fresh seeds, compared in pairs."""

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from data import DataConfig, Tokenizer
from model import Architecture, build_model, load_architecture
from nas.costs.latency import Latencies
from nas.statistics.intervals import paired_differences, paired_line
from pipeline.architectures import network_hash
from pipeline.compare import unlike_conditions
from pipeline.costs import time_models
from pipeline.experiment import Experiment, with_settings
from pipeline.experiment_sweep import why_not_comparable
from pipeline.jobs import SCRIPTS, Job, run_all
from pipeline.plan import RunPlan
from pipeline.run_files import check_validations, read_result, retrain_folder
from pipeline.trainings import check_fresh, seeded
from training.signals import StopRequest
from utils.files import csv_of, write_whole
from utils.text import aligned


@dataclass(frozen=True)
class Side:
    """One of the two experiments; its runs are in a folder of its name."""

    name: str
    experiment: Experiment


def check_sides(one: Side, two: Side) -> None:
    """Raise ValueError where a difference would say nothing: no other setting, or other text."""
    for side in (one, two):
        for problem in side.experiment.layout_problems():
            raise ValueError(f"{side.name}: {problem}")
    bare = [with_settings(side.experiment, {}) for side in (one, two)]
    if bare[0] == bare[1]:
        raise ValueError(f"{one.name} and {two.name} are the same experiment; nothing to compare")
    if keys := _keys_of_other_text(one.experiment.data, two.experiment.data):
        raise ValueError(
            f"{one.name} and {two.name} differ in {', '.join(keys)}: results on other text, or on "
            "text cut otherwise, cannot be compared; --set changes a key of both"
        )
    ours, theirs = (side.experiment.run.validate_every for side in (one, two))
    if ours != theirs:
        raise ValueError(
            f"run.validate_every: {one.name} has {ours}, {two.name} {theirs}; the best steps would "
            "be chosen among more or fewer; --set run.validate_every=N gives both the same"
        )


def _keys_of_other_text(one: DataConfig, two: DataConfig) -> list[str]:
    """Keys in which two texts differ; how a model learns from a text may, as in a sweep."""
    names = [name for name in type(one).model_fields if getattr(one, name) != getattr(two, name)]
    keys = [f"data.{name}" for name in names]
    return [key for key in keys if any(why_not_comparable(key, data) for data in (one, two))]


def check_seeds(sides: Sequence[Side], seeds: Sequence[int]) -> None:
    """Raise ValueError where a seed is one of a side's sweep, whose best trial it may have made."""
    for side in sides:
        if (sweep := side.experiment.sweep) is not None:
            check_fresh(seeds, "--seeds", sweep.seeds, f"the sweep.seeds of {side.name}")


def check_text(tokenizer: Tokenizer) -> None:
    """Raise ValueError where results have no bits per byte, which are what is compared."""
    if tokenizer.byte_length_V is None:
        raise ValueError(
            "data.tokenizer: it does not give the text back exactly, so there are no bits per byte "
            "to compare; take one that does (kind bpe, unigram or bytes, without lower_case)"
        )


def train_sides(
    sides: Sequence[Side], seeds: Sequence[int], run: Path, *, workers: int, stop: StopRequest
) -> None:
    """Run every phase of every side and seed, and raise what `run_all` does; sides take turns."""
    jobs = [
        Job(
            f"{side.name}, seed {seed}",
            seeded(side.experiment, seed),
            SCRIPTS,
            _folder(run, side, seed),
        )
        for seed in seeds
        for side in sides
    ]

    def done(job: Job) -> None:
        print(f"{job.name}: done", flush=True)

    run_all(jobs, workers=workers, stop=stop, done=done)


def _folder(run: Path, side: Side, seed: int) -> Path:
    return run / side.name / f"seed-{seed}"


def finish_sides(plan: RunPlan, sides: Sequence[Side], seeds: Sequence[int], run: Path) -> str:
    """Measure latencies; write RUN/confirm.csv and confirm.json; the table and what may be said.

    Raises:
        ValueError: best steps were chosen among more or fewer, or the tests scored other bytes.
    """
    rows, trainings, results = list[dict[str, Any]](), dict[str, list[Path]](), {}
    made = architectures_of(sides, seeds, run)
    measured = latencies(plan, made)
    for side in sides:
        trainings[side.name] = [
            retrain_folder(_folder(run, side, seed), made[side.name, seed].name, seed)
            for seed in seeds
        ]
        results[side.name] = [read_result(one / "result.json") for one in trainings[side.name]]
        rows += [
            {
                "experiment": side.name,
                "seed": seed,
                "layout": result["layout"],
                "parameters": result["parameters"],
                "flops_per_token": result["flops_per_token"],
                "test_bits_per_byte": result["test"]["bits_per_byte"],
                "test_bytes": result["test"]["bytes"],
                "valid_bits_per_byte": result["valid"]["bits_per_byte"],
                "latency_ms": measured.median_ms.get(f"{side.name}/{seed}"),
            }
            for seed, result in zip(seeds, results[side.name], strict=True)
        ]
    check_validations(results)
    if len({row["test_bytes"] for row in rows}) > 1:
        raise ValueError("test_bytes: the runs were tested on texts of different lengths")
    one, two = (side.name for side in sides)
    verdict = verdict_line(rows, one, two)
    seen = same_networks(made, one, two, seeds), unlike_conditions(trainings)
    summary = {
        "verdict": verdict,
        "remarks": [remark for remark in seen if remark],
        "latency_note": measured.note,
        "latency_key": measured.key,
        "rows": rows,
    }
    write_whole(run / "confirm.csv", csv_of(rows, list(rows[0])))
    write_whole(run / "confirm.json", json.dumps(summary, indent=1) + "\n")
    return "\n".join([*_table(rows), measured.note, verdict, *filter(None, seen)])


Architectures = Mapping[tuple[str, int], Architecture]


def architectures_of(sides: Sequence[Side], seeds: Sequence[int], run: Path) -> Architectures:
    """The derived architecture of each side and seed."""
    return {
        (side.name, seed): load_architecture(_folder(run, side, seed) / "architecture.json")
        for side in sides
        for seed in seeds
    }


def latencies(plan: RunPlan, made: Architectures) -> Latencies:
    """Forward latency of every derived network, all in turn and each once, by `side/seed`."""
    networks = {key: network_hash(architecture) for key, architecture in made.items()}
    once = {networks[key]: architecture for key, architecture in made.items()}
    found = time_models(plan, {network: build_model(one) for network, one in once.items()})
    ms = found.median_ms
    of_each = {f"{name}/{seed}": ms[it] for (name, seed), it in networks.items() if it in ms}
    return replace(found, median_ms=of_each)


def same_networks(made: Architectures, one: str, two: str, seeds: Sequence[int]) -> str:
    """With which seeds the two came to one network, in a line; nothing where with none."""
    alike = [
        str(seed) for seed in seeds if len({network_hash(made[it, seed]) for it in (one, two)}) == 1
    ]
    if not alike:
        return ""
    return (
        f"{one} and {two} derived one network with {len(alike)} of {len(seeds)} seeds "
        f"({', '.join(alike)}); trained alike it gives both the same"
    )


def verdict_line(rows: Sequence[Mapping[str, Any]], one: str, two: str) -> str:
    """What may be said of the first against the second, paired by seed."""
    bits = {
        name: [row["test_bits_per_byte"] for row in rows if row["experiment"] == name]
        for name in (one, two)
    }
    if (n := len(bits[one])) < 2:
        return f"no verdict possible (n = {n})"
    spread = ", ".join(
        f"{name} {statistics.fmean(values):.4f} (sd {statistics.stdev(values):.4f})"
        for name, values in bits.items()
    )
    difference = paired_differences(bits[one], {two: bits[two]})[two]
    line = paired_line(one, two, difference, "bits per byte of test")
    return f"{line} seeds, each a search, a derivation and a retraining; {spread}"


def _table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The rows for a terminal, with the mean of each side."""
    cells = [["experiment", "layout", "seed", "MFLOP", "ms", "test bits/byte"]]
    for name in dict.fromkeys(row["experiment"] for row in rows):
        side = [row for row in rows if row["experiment"] == name]
        cells += [_cells(name, row["layout"], str(row["seed"]), [row]) for row in side]
        cells.append(_cells(name, "", "mean", side))
    return ["", *aligned(cells, left=2)]


def _cells(name: str, layout: str, seed: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    flops, bits = (
        statistics.fmean(row[key] for row in rows)
        for key in ("flops_per_token", "test_bits_per_byte")
    )
    times = [row["latency_ms"] for row in rows]
    latency = "-" if None in times else f"{statistics.fmean(times):.2f}"
    return [name, layout, seed, f"{flops / 1e6:.3f}", latency, f"{bits:.4f}"]
