"""Real sweeps of a tiny experiment for tests: their file, their processes, what they left."""

import csv
import os
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from optuna import create_study
from optuna.storages import BaseStorage, InMemoryStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from hpo.queue import LEASE, Entry, Queue, entries
from hpo.samplers import NumberedSampler, make_pruner
from pipeline.sweep.plan import Sweep
from tests.runs import last_step

ROOT = Path(__file__).resolve().parents[1]
T = TypeVar("T")


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


CHILD = "pipeline.processes.child"
# Of a search that is to be met in its middle.
SLOW_STEPS = 300

SWEEP = """
sweep:
  trials: {trials}
  lease_s: 30
  space:
    search.tau.schedule: {{choices: [linear, step]}}
    search.tau.start: {{low: 0.5, high: 2.0, log: true}}
    search.tau.stairs: {{low: 2, high: 4, when: {{search.tau.schedule: step}}}}
    model.slots: {{low: 2, high: 4}}
"""


def add_sweep(file: Path, *, trials: int, more: str = "") -> Path:
    """A sweep over the tiny experiment; its trials draw nothing."""
    text = file.read_text().replace(
        "  optimiser: {lr: 0.003", "  tau: {start: 1.0}\n  optimiser: {lr: 0.003", 1
    )
    text = text.replace("run: {", "run: {figures: false, ", 1)
    file.write_text(text + SWEEP.format(trials=trials) + more)
    return file


def memory_queue(
    sweep: Sweep, points: Sequence[Mapping[str, Any]] = ({},), retries: int = 2
) -> Queue:
    """A queue in memory, filled."""
    storage = InMemoryStorage()
    study = create_study(
        storage=storage,
        directions=["minimize"] * len(sweep.config.objectives),
        sampler=NumberedSampler(sweep.config),
        pruner=make_pruner(sweep.config.pruner, validate_every=10),
    )
    queue = Queue(study, storage, retries=retries)
    queue.fill(points)
    return queue


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


def journal_entries(folder: Path) -> list[Entry]:
    """The trials in a run folder's journal."""
    path = folder / "sweep" / "study.journal"
    if not path.exists():
        return []
    return stored_entries(JournalStorage(JournalFileBackend(str(path.absolute()))))


def stored_entries(storage: BaseStorage) -> list[Entry]:
    """The trials of the only study in a storage; none where there is none yet."""
    return [
        entry
        for study in storage.get_all_studies()
        for entry in entries(storage.get_all_trials(study._study_id, deepcopy=False))
    ]


def free_port() -> int:
    """A port that nobody listens to."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_for(condition: Callable[[], T], limit_s: float = 180) -> T:
    """Wait until something is so; what the condition then said."""
    until = time.monotonic() + limit_s
    while not (value := condition()):
        assert time.monotonic() < until, "it never came"
        time.sleep(0.1)
    return value


def processes(*words: str) -> dict[int, list[str]]:
    """Living processes whose command line holds all the words."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            parts = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if all(any(word in part for part in parts) for word in words):
            found[int(path.parent.name)] = parts
    return found


@dataclass
class Overlaps:
    """Looks again and again at which run directories have a process, and counts two in one."""

    folder: Path
    looks: int = 0
    twice: set[str] = field(default_factory=set)

    def look(self) -> None:
        """Look once."""
        self.looks += 1
        runs = Counter(
            parts[parts.index("--run") + 1]
            for pid, parts in processes(CHILD, str(self.folder)).items()
            if "--run" in parts and _leads(pid)
        )
        self.twice |= {run for run, count in runs.items() if count > 1}


def _leads(pid: int) -> bool:
    """Whether a process was started as a trial's, and is not one that such a process has forked."""
    try:
        return os.getsid(pid) == pid
    except ProcessLookupError:
        return False


def lease_pid(trial: FrozenTrial) -> int:
    """The process of the pool that runs, or ran, an attempt."""
    return int(trial.system_attrs[LEASE]["pid"])


def in_the_middle(folder: Path, entries: Sequence[Entry]) -> list[Entry]:
    """Those trials of a pool whose search has saved a checkpoint and is far from its end.

    A trial runs in the storage a moment before its pool's lease stands there, so an entry read
    before does not say whose it is. A search near its end may reach it before a signal does.
    """
    return [
        entry
        for entry in entries
        if entry.last.state == TrialState.RUNNING
        and LEASE in entry.last.system_attrs
        and _searches(folder / "trials" / f"{entry.number:04d}" / "seed-0" / "search" / "seed-0")
    ]


def _searches(phase: Path) -> bool:
    return (phase / "last.safetensors").exists() and (
        last_step(phase / "metrics.jsonl") <= SLOW_STEPS // 2
    )


def all_ended(folder: Path) -> bool:
    """Whether no process of a sweep is left."""
    return not processes(str(folder))
