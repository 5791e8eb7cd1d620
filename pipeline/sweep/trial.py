"""A run of a trial, and what its files came to."""

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model import load_architecture
from pipeline.experiment import Experiment
from pipeline.processes.run_scripts import (
    CHOSEN,
    METRICS,
    SCRIPTS,
    Failed,
    Limits,
    expected_folders,
    run_scripts,
)
from pipeline.processes.script_process import Watcher
from pipeline.run_files import read_result, retrain_folder, search_folder
from training.metrics import read_rows
from utils.files import read_object, words_of

NO_BITS = (
    "sweep.objectives: no bits per byte, because the tokenizer may lose text; use a lossless one "
    "(kind bpe, unigram or bytes, without lower_case)"
)


@dataclass(frozen=True)
class SeedOutcome:
    """What one run of a trial came to.

    Attributes:
        objectives: by name.
        facts: layout, sizes and where it went on, for the table.
        architecture: the JSON text of the derived model.
    """

    objectives: dict[str, float]
    facts: dict[str, Any]
    architecture: str


def read_outcome(run: Path, seed: int, objectives: Sequence[str]) -> SeedOutcome:
    """Read what search, derivation and retraining of one seed wrote.

    Raises:
        ValueError: a file is damaged, or there are no bits per byte.
        OSError: a file is missing.
    """
    chosen = run / CHOSEN
    architecture = load_architecture(chosen)
    if architecture.costs is None:
        raise ValueError(f"{chosen}: costs: missing; derive.py writes them, run the trial again")
    values = {
        "flops": architecture.costs.flops_per_token,
        "parameters": float(architecture.costs.parameters),
    }
    onehot = search_curve(search_folder(run, seed) / METRICS, "onehot")
    if onehot or "onehot" in objectives:  # a search whose alpha stands still has no such net
        values["onehot"] = _last(onehot, run)
    if "retrained" in objectives:
        path = retrain_folder(run, architecture.name, seed) / "result.json"
        values["retrained"] = _bits(read_result(path)["valid"], path)
    return SeedOutcome(
        objectives=values,
        facts={
            "layout": architecture.letters(),
            "parameters": architecture.costs.parameters,
            "flops_per_token": architecture.costs.flops_per_token,
            "went_on_from": _resumes(run, seed),
        },
        architecture=architecture.to_json(),
    )


def search_curve(metrics: Path, net: str) -> dict[int, float]:
    """Bits per byte of validation by step of the search that writes these metrics, as far as it is.

    Raises:
        ValueError: a row is damaged, or there are no bits per byte.
        OSError: the file is there and cannot be read.
    """
    return {
        row["step"]: _bits(row, metrics)
        for row in read_rows(metrics)
        if row.get("kind") == "valid" and row.get("net") == net
    }


def _resumes(run: Path, seed: int) -> list[str]:
    """From which steps the phases of a run went on."""
    resumes = []
    for folder in expected_folders(run, seed):
        path = folder / "environment.json"
        if not path.exists():  # nothing was searched, or retrained
            continue
        phase = path.relative_to(run).parts[0]
        entries: Any = read_object(path, "remove it").get("resumed", [])
        try:
            resumes += [f"{phase} step {int(entry['step'])}" for entry in entries]
        except (TypeError, KeyError, ValueError, OverflowError):
            raise ValueError(f"{path}: resumed: damaged; remove it") from None
    return resumes


def _last(curve: Mapping[int, float], run: Path) -> float:
    if not curve:
        raise ValueError(f"{run}: the search wrote no validation of the one-hot net")
    return curve[max(curve)]


def _bits(scores: Mapping[str, Any], path: Path) -> float:
    bits = scores.get("bits_per_byte", math.nan)
    if bits is None:
        raise ValueError(NO_BITS)
    # Not isfinite: an integer of JSON may be too large for it.
    if not isinstance(bits, int | float) or not 0 <= bits <= sys.float_info.max:
        raise ValueError(f"{path}: bits_per_byte: damaged; run the trial again")
    return float(bits)


def run_seed(
    experiment: Experiment, objectives: Sequence[str], run: Path, limits: Limits, watcher: Watcher
) -> SeedOutcome:
    """Run the phases of one seed as `run_scripts` does, and read what they came to.

    Without the objective `retrained` nothing is retrained.
    """
    scripts = SCRIPTS if "retrained" in objectives else SCRIPTS[:2]
    run_scripts(experiment, scripts, run, limits, watcher)
    with faults_of_the_trial():
        return read_outcome(run, experiment.run.seed, objectives)


@contextmanager
def faults_of_the_trial() -> Iterator[None]:
    """Let what is wrong with the files that a trial wrote fail this trial, and not its worker."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise Failed(words_of(error)) from None
