"""Two experiments with fresh seeds, each seed a whole run; which is better."""

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from data import DataConfig
from model import build_model, load_architecture
from nas.costs.latency import Latencies
from nas.statistics.intervals import (
    change_words,
    comparison_words,
    paired_differences,
    smallest_visible,
)
from pipeline.architectures import network_hash
from pipeline.compare import unlike_conditions
from pipeline.costs import time_models
from pipeline.derive import table_text
from pipeline.experiment import Experiment, with_settings
from pipeline.jobs import SCRIPTS, Job, run_all
from pipeline.layout_scores import check_fresh, seeded
from pipeline.plan import RunPlan, set_up
from pipeline.run_files import retrain_folder
from training.signals import StopRequest
from utils.files import csv_of, read_object, write_whole
from utils.screen import announce

_OTHER_TOKENS = (
    "forward latency: not measured: the two read other tokens, of which each stands for more or "
    "less text; FLOPs per token cannot be compared either"
)
# Experiments by name, each of which has a whole run with every seed.
Sides = Mapping[str, Experiment]


def check_sides(sides: Sides, seeds: Sequence[int]) -> None:
    """Raise ValueError where a difference would say nothing.

    It does where no setting or the text is another, or where a seed is one of a side's sweep, whose
    best trial it may have made.
    """
    for name, experiment in sides.items():
        for problem in experiment.layout_problems():
            raise ValueError(f"{name}: {problem}")
        if experiment.derive.searches:
            raise ValueError(f"{name}: derive.searches: each seed has one search; leave it out")
        if not experiment.has_search:
            experiment.check_seeds(seeds)
        if experiment.sweep is not None:
            check_fresh(seeds, "--seeds", experiment.sweep.seeds, f"the sweep.seeds of {name}")
    (one, ours), (two, theirs) = sides.items()
    if with_settings(ours, {}, ["compare"]) == with_settings(theirs, {}, ["compare"]):
        raise ValueError(f"{one} and {two} are the same experiment; nothing to compare")
    # How a model learns from a text may differ, as in a sweep.
    texts = [side.data for side in (ours, theirs)]
    names = [n for n in DataConfig.model_fields if getattr(texts[0], n) != getattr(texts[1], n)]
    keys = [f"data.{name}" for name in names if any(t.why_not_comparable(name) for t in texts)]
    if keys:
        raise ValueError(
            f"{one} and {two} differ in {', '.join(keys)}: results on other text, or on "
            "text cut otherwise, cannot be compared; --set changes a key of both"
        )


def plan_sides(sides: Sides, run: Path) -> RunPlan:
    """Prepare both texts; the second's plan, by which both are timed.

    ValueError where there would be no bits per byte, or where the best step of one would be chosen
    among more than the other's.
    """
    plans = {name: set_up(experiment, run) for name, experiment in sides.items()}
    for name, plan in plans.items():
        if plan.prepared.tokenizer.byte_length_V is None:
            raise ValueError(
                f"{name}: data.tokenizer: it does not give the text back exactly, so there are no "
                "bits per byte to compare; take one that does (kind bpe, unigram or bytes, without "
                "lower_case)"
            )
    (one, ours), (two, theirs) = (
        (name, -(-plan.stages.steps // plan.experiment.run.validate_every))
        for name, plan in plans.items()
    )
    if ours != theirs:
        raise ValueError(
            f"run.validate_every: {one} would have {ours} validations, {two} {theirs}, so their "
            "best steps would be chosen among more or fewer; give one of the files another"
        )
    return plans[two]


def train_sides(
    sides: Sides, seeds: Sequence[int], run: Path, *, workers: int, stop: StopRequest
) -> None:
    """Run every phase of every side and seed, and raise what `run_all` does; sides take turns."""
    if workers > 1 and (timed := [key for side in sides.values() for key in side.timed]):
        raise ValueError(f"{timed[0]}: times need the machine alone; give --workers 1")
    jobs = [
        Job(
            f"{name}, seed {seed}",
            seeded(experiment, seed),
            SCRIPTS[not experiment.has_search :],
            _folder(run, name, seed),
        )
        for seed in seeds
        for name, experiment in sides.items()
    ]
    run_all(jobs, workers=workers, stop=stop, done=lambda job: announce(f"{job.name}: done"))


def _folder(run: Path, name: str, seed: int) -> Path:
    return run / name / f"seed-{seed}"


def finish_sides(plan: RunPlan, sides: Sides, seeds: Sequence[int], run: Path) -> str:
    """Measure latencies; write RUN/confirm.csv and confirm.json; the table and what may be said."""
    folders = {(name, seed): _folder(run, name, seed) for name in sides for seed in seeds}
    made = {key: load_architecture(one / "architecture.json") for key, one in folders.items()}
    trainings: dict[str, list[Path]] = {name: [] for name in sides}
    for (name, seed), folder in folders.items():
        trainings[name].append(retrain_folder(folder, made[name, seed].name, seed))
    results = {
        name: [read_object(folder / "result.json") for folder in of_side]
        for name, of_side in trainings.items()
    }
    networks = {key: network_hash(architecture) for key, architecture in made.items()}
    models = {networks[key]: build_model(architecture) for key, architecture in made.items()}
    if len({architecture.tokenizer.digest for architecture in made.values()}) > 1:
        measured = Latencies({}, _OTHER_TOKENS, {})
    else:
        measured = time_models(plan, models)
    rows = [
        {
            "experiment": name,
            "seed": seed,
            **{key: result[key] for key in ("layout", "parameters", "flops_per_token")},
            "test_bits_per_byte": result["test"]["bits_per_byte"],
            "test_bytes": result["test"]["bytes"],
            "valid_bits_per_byte": result["valid"]["bits_per_byte"],
            "latency_ms": measured.median_ms.get(networks[name, seed]),
        }
        for name, of_side in results.items()
        for seed, result in zip(seeds, of_side, strict=True)
    ]
    one, two = sides
    alike = [str(seed) for seed in seeds if networks[one, seed] == networks[two, seed]]
    remarks = [unlike] if (unlike := unlike_conditions(trainings)) else []
    if alike:
        remarks.append(f"{one} and {two} derived one network with seeds {', '.join(alike)}")
    tests = {name: [result["test"] for result in of_side] for name, of_side in results.items()}
    verdict = verdict_line({name: [t["bits_per_byte"] for t in of] for name, of in tests.items()})
    summary = {
        "verdict": verdict,
        "remarks": remarks,
        "latency_note": measured.note,
        "latency_key": measured.key,
        "rows": rows,
    }
    write_whole(run / "confirm.csv", csv_of(rows, list(rows[0])))
    write_whole(run / "confirm.json", json.dumps(summary, indent=1) + "\n")
    shown = ["experiment", "layout", "seed", "flops_per_token", "latency_ms", "test_bits_per_byte"]
    return "\n".join(["", table_text(rows, shown), measured.note, verdict, *remarks])


def verdict_line(bits: Mapping[str, Sequence[float]]) -> str:
    """What may be said of the first against the second, paired by seed, in bits per byte."""
    (one, ours), (two, theirs) = bits.items()
    if len(ours) < 2:
        return "not testable with one seed"
    spread = ", ".join(
        f"{name} {statistics.fmean(values):.4f} (sd {statistics.stdev(values):.4f})"
        for name, values in bits.items()
    )
    found, show = paired_differences(ours, {two: theirs})[two], "{:+.4f}".format
    visible = smallest_visible(found.half_width, found.n)
    words = comparison_words(one, two, found.shown, f"{visible:.4f} bits per byte")
    change = change_words(ours, theirs, "test bits per byte", show)
    return f"{words}: {change}; each seed is a whole run; {spread}"
