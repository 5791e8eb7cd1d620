"""Two experiments, each searched, derived and retrained with fresh seeds, compared in pairs."""

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
        bits = result_of(job.folder, job.experiment.run.seed)["test"]["bits_per_byte"]
        print(f"{job.name}: test {bits:.4f} bits per byte", flush=True)

    run_all(jobs, workers=workers, stop=stop, done=done)


def _folder(run: Path, side: Side, seed: int) -> Path:
    return run / side.name / f"seed-{seed}"


def result_of(folder: Path, seed: int) -> dict[str, Any]:
    """The result of a run's chosen architecture."""
    return read_result(_training(folder, seed) / "result.json")


def _training(folder: Path, seed: int) -> Path:
    name = load_architecture(folder / "architecture.json").name
    return retrain_folder(folder, name, seed)


def unlike_trainings(sides: Sequence[Side], seeds: Sequence[int], run: Path) -> str:
    """In what the conditions of the trainings differ, in a line; nothing where in nothing."""
    return unlike_conditions(
        {side.name: [_training(_folder(run, side, seed), seed) for seed in seeds] for side in sides}
    )


def table_of(sides: Sequence[Side], seeds: Sequence[int], run: Path) -> list[dict[str, Any]]:
    """One row for each side and seed.

    Raises:
        ValueError: the tests did not score the same bytes, or best steps were chosen among more or
            fewer.
    """
    rows = []
    for side in sides:
        results = [result_of(_folder(run, side, seed), seed) for seed in seeds]
        check_validations({side.name: results})
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
            }
            for seed, result in zip(seeds, results, strict=True)
        ]
    if len({row["test_bytes"] for row in rows}) > 1:
        raise ValueError("test_bytes: the runs were tested on texts of different lengths")
    return rows


def latencies(plan: RunPlan, sides: Sequence[Side], seeds: Sequence[int], run: Path) -> Latencies:
    """Forward latency of every derived network, all in turn, by `side/seed`."""
    architectures = {
        f"{side.name}/{seed}": _architecture(run, side, seed) for side in sides for seed in seeds
    }
    networks = {key: network_hash(architecture) for key, architecture in architectures.items()}
    once = {networks[key]: architecture for key, architecture in architectures.items()}
    models = {network: build_model(architecture) for network, architecture in once.items()}
    latencies = time_models(plan, models)
    ms = latencies.median_ms
    median_ms = {key: ms[network] for key, network in networks.items() if network in ms}
    return replace(latencies, median_ms=median_ms)


def same_networks(one: Side, two: Side, seeds: Sequence[int], run: Path) -> str:
    """With which seeds the two came to one network, in a line; nothing where with none."""
    alike = [
        str(seed)
        for seed in seeds
        if len({network_hash(_architecture(run, side, seed)) for side in (one, two)}) == 1
    ]
    if not alike:
        return ""
    return (
        f"{one.name} and {two.name} derived one network with {len(alike)} of {len(seeds)} seeds "
        f"({', '.join(alike)}); trained alike it gives both the same"
    )


def _architecture(run: Path, side: Side, seed: int) -> Architecture:
    return load_architecture(_folder(run, side, seed) / "architecture.json")


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
