"""Two experiments, each searched, derived and retrained with fresh seeds, compared in pairs."""

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from data import DataConfig
from model import Architecture, build_model, load_architecture
from nas.costs.latency import Latencies
from nas.statistics.intervals import paired_differences, paired_line
from pipeline.compare import unlike_conditions
from pipeline.costs import time_models
from pipeline.derive import network_hash
from pipeline.experiment import Experiment, with_settings
from pipeline.experiment_sweep import why_not_comparable
from pipeline.jobs import SCRIPTS, Job, run_all
from pipeline.layout_scores import check_fresh, seeded
from pipeline.plan import RunPlan
from pipeline.run_files import check_validations, read_result, retrain_folder
from training.signals import StopRequest
from utils.files import csv_of, write_whole
from utils.screen import announce
from utils.text import aligned

Sides = Mapping[str, Experiment]
Architectures = Mapping[tuple[str, int], Architecture]


def check_sides(sides: Sides, seeds: Sequence[int]) -> None:
    """Raise ValueError where a difference would say nothing.

    It does where no setting or the text is another, or where a seed is one of a side's sweep, whose
    best trial it may have made.
    """
    for name, experiment in sides.items():
        for problem in experiment.layout_problems():
            raise ValueError(f"{name}: {problem}")
        if experiment.sweep is not None:
            check_fresh(seeds, "--seeds", experiment.sweep.seeds, f"the sweep.seeds of {name}")
    (one, ours), (two, theirs) = sides.items()
    if with_settings(ours, {}) == with_settings(theirs, {}):
        raise ValueError(f"{one} and {two} are the same experiment; nothing to compare")
    if keys := _keys_of_other_text(ours.data, theirs.data):
        raise ValueError(
            f"{one} and {two} differ in {', '.join(keys)}: results on other text, or on "
            "text cut otherwise, cannot be compared; --set changes a key of both"
        )
    every = [side.run.validate_every for side in (ours, theirs)]
    if every[0] != every[1]:
        raise ValueError(
            f"run.validate_every: {one} has {every[0]}, {two} {every[1]}; the best steps would "
            "be chosen among more or fewer; --set run.validate_every=N gives both the same"
        )


def _keys_of_other_text(one: DataConfig, two: DataConfig) -> list[str]:
    """Keys in which two texts differ; how a model learns from a text may, as in a sweep."""
    names = [name for name in type(one).model_fields if getattr(one, name) != getattr(two, name)]
    keys = [f"data.{name}" for name in names]
    return [key for key in keys if any(why_not_comparable(key, data) for data in (one, two))]


def train_sides(
    sides: Sides, seeds: Sequence[int], run: Path, *, workers: int, stop: StopRequest
) -> None:
    """Run every phase of every side and seed, and raise what `run_all` does; sides take turns."""
    jobs = [
        Job(f"{name}, seed {seed}", seeded(experiment, seed), SCRIPTS, _folder(run, name, seed))
        for seed in seeds
        for name, experiment in sides.items()
    ]
    run_all(jobs, workers=workers, stop=stop, done=lambda job: announce(f"{job.name}: done"))


def _folder(run: Path, name: str, seed: int) -> Path:
    return run / name / f"seed-{seed}"


def finish_sides(plan: RunPlan, sides: Sides, seeds: Sequence[int], run: Path) -> str:
    """Measure latencies; write RUN/confirm.csv and confirm.json; the table and what may be said."""
    made = {
        (name, seed): load_architecture(_folder(run, name, seed) / "architecture.json")
        for name in sides
        for seed in seeds
    }
    trainings = {
        name: [retrain_folder(_folder(run, name, seed), made[name, seed].name, seed)
               for seed in seeds]
        for name in sides
    }  # fmt: skip
    results = {
        name: [read_result(folder / "result.json") for folder in folders]
        for name, folders in trainings.items()
    }
    check_validations(results)
    measured = latencies(plan, made)
    rows = [
        {
            "experiment": name,
            "seed": seed,
            **{key: result[key] for key in ("layout", "parameters", "flops_per_token")},
            "test_bits_per_byte": result["test"]["bits_per_byte"],
            "test_bytes": result["test"]["bytes"],
            "valid_bits_per_byte": result["valid"]["bits_per_byte"],
            "latency_ms": measured.median_ms.get(f"{name}/{seed}"),
        }
        for name, of_side in results.items()
        for seed, result in zip(seeds, of_side, strict=True)
    ]
    verdict = verdict_line(rows, *sides)
    remarks = [*filter(None, (same_networks(made), unlike_conditions(trainings)))]
    summary = {
        "verdict": verdict,
        "remarks": remarks,
        "latency_note": measured.note,
        "latency_key": measured.key,
        "rows": rows,
    }
    write_whole(run / "confirm.csv", csv_of(rows, list(rows[0])))
    write_whole(run / "confirm.json", json.dumps(summary, indent=1) + "\n")
    return "\n".join([*_table(rows), measured.note, verdict, *remarks])


def latencies(plan: RunPlan, made: Architectures) -> Latencies:
    """Forward latency of every derived network, all in turn and each once, by `side/seed`."""
    networks = {key: network_hash(architecture) for key, architecture in made.items()}
    once = {networks[key]: architecture for key, architecture in made.items()}
    found = time_models(plan, {network: build_model(one) for network, one in once.items()})
    ms = found.median_ms
    of_each = {f"{name}/{seed}": ms[it] for (name, seed), it in networks.items() if it in ms}
    return replace(found, median_ms=of_each)


def same_networks(made: Architectures) -> str:
    """With which seeds the two came to one network, in a line; nothing where with none."""
    one, two = dict.fromkeys(name for name, _ in made)
    seeds = list(dict.fromkeys(seed for _, seed in made))
    alike = [
        str(seed)
        for seed in seeds
        if network_hash(made[one, seed]) == network_hash(made[two, seed])
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
        means = {"layout": "", "seed": "mean", **dict(_means(side))}
        for row in [*side, means]:
            ms = "-" if row["latency_ms"] is None else f"{row['latency_ms']:.2f}"
            mflop, bits = row["flops_per_token"] / 1e6, row["test_bits_per_byte"]
            cells.append([name, row["layout"], str(row["seed"]), f"{mflop:.3f}", ms, f"{bits:.4f}"])
    return ["", *aligned(cells, left=2)]


def _means(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, float | None]]:
    for key in ("flops_per_token", "latency_ms", "test_bits_per_byte"):
        values = [row[key] for row in rows]
        yield key, None if None in values else statistics.fmean(values)
