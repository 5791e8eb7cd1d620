"""Sweeps of the tests: their file, their command line, their trials, their workers."""

import csv
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import optuna
from optuna.storages import InMemoryStorage

from hpo.samplers import NumberedSampler, make_pruner
from hpo.study import TrialEntry, entries, fill, open_storage
from pipeline.sweep.plan import Sweep
from tests.runs import ROOT as ROOT

T = TypeVar("T")

SWEEP = """
sweep:
  trials: {trials}
  grace_s: 10
  space:
    search.tau.schedule: {{choices: [linear, step]}}
    search.tau.start: {{low: 0.5, high: 2.0, log: true}}
    search.tau.stairs: {{low: 2, high: 4, when: {{search.tau.schedule: step}}}}
    model.n_blocks: {{low: 2, high: 4}}
"""


def add_sweep(file: Path, *, trials: int, more: str = "") -> Path:
    """A sweep over the tiny experiment; its trials draw nothing."""
    text = file.read_text().replace(
        "  optimiser: {lr: 0.003", "  tau: {start: 1.0}\n  optimiser: {lr: 0.003", 1
    )
    text = text.replace("run: {", "run: {figures: false, ", 1)
    file.write_text(text + SWEEP.format(trials=trials) + more)
    return file


def memory_study(sweep: Sweep, points: Sequence[Mapping[str, Any]] = ({},)) -> optuna.Study:
    """A study in memory, filled."""
    study = optuna.create_study(
        storage=InMemoryStorage(),
        directions=["minimize"] * len(sweep.config.objectives),
        sampler=NumberedSampler(sweep.config),
        pruner=make_pruner(sweep.config.pruner, validate_every=10),
    )
    fill(study, points)
    return study


def command(*arguments: object) -> list[str]:
    """A command line of sweep.py."""
    return [sys.executable, str(ROOT / "sweep.py"), *map(str, arguments)]


def run(*arguments: object, timeout_s: float = 600) -> subprocess.CompletedProcess[str]:
    """Run sweep.py to its end."""
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, timeout=timeout_s, check=False
    )


def table(folder: Path) -> list[dict[str, str]]:
    """trials.csv."""
    with (folder / "trials.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@cache
def _storage(url: str) -> optuna.storages.BaseStorage:
    return open_storage(url, grace_s=10, retries=2)


def stored_entries(url: str) -> list[TrialEntry]:
    """The trials of the only study of a database; none where there is none yet."""
    # Who looks must not make the tables of a file while the sweep does.
    if url.startswith("sqlite") and not Path(url[10:]).with_name("experiment.yaml").exists():
        return []
    studies = _storage(url).get_all_studies()
    if not studies:
        return []
    return entries(optuna.load_study(study_name=studies[0].study_name, storage=_storage(url)))


def wait_for(condition: Callable[[], T], limit_s: float = 300) -> T:
    """Wait until something is so; what the condition then said."""
    until = time.monotonic() + limit_s
    while not (value := condition()):
        assert time.monotonic() < until, "it never came"
        time.sleep(0.05)
    return value


def workers_of(pid: int) -> list[int]:
    """The workers of a process of sweep.py."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children if "spawn_main" in command_of(int(child))]


def command_of(pid: int) -> str:
    """The command line of a process; empty where there is none."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""
