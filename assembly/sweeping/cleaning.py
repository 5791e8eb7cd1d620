"""Removing checkpoints and models of trials that are done."""

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from assembly.sweeping.plan import Sweep
from assembly.sweeping.rows import network_hashes
from assembly.sweeping.settings import is_baseline
from hpo.queue import Entry, Queue

_MODEL = "model"


def clean(queue: Queue, sweep: Sweep) -> None:
    """Remove what only a resume or a use of the model would need, of all trials not kept."""
    # Read once: a trial that becomes the best meanwhile is not finished in here, and so stays.
    entries = queue.entries()
    kept = _kept(entries, sweep)
    for entry in entries:
        folder = sweep.places.trial(entry.number)
        done = folder / "cleaned"
        if not entry.finished or entry.number in kept or not folder.exists() or done.exists():
            continue
        for seed in sweep.config.seeds:
            remove_weights(sweep.places.seed(entry.number, seed))
        with suppress(FileNotFoundError):  # the folder was moved aside
            done.touch()


def remove_weights(run: Path) -> None:
    """Remove checkpoints and models of a run that is done; several processes may do so at once."""
    # Not a glob: that one ends with an error where another process removes a folder meanwhile.
    for folder, subfolders, files in os.walk(run):
        of_a_seed = Path(folder) == run or Path(folder).name.startswith("seed-")
        if _MODEL in subfolders and of_a_seed:
            subfolders.remove(_MODEL)
            shutil.rmtree(Path(folder) / _MODEL, ignore_errors=True)
        for name in files:
            if name.endswith(".safetensors"):
                (Path(folder) / name).unlink(missing_ok=True)


def _kept(entries: Sequence[Entry], sweep: Sweep) -> set[int]:
    """Numbers of the trials whose files stay."""
    keep = sweep.config.keep
    if "all" in keep:
        return {entry.number for entry in entries}
    numbers = {number for number in keep if isinstance(number, int)}
    if "best" in keep:
        numbers |= {entry.number for entry in best_entries(entries, sweep)}
    # A trial that failed may be looked into.
    return numbers | {e.number for e in entries if e.last.state == TrialState.FAIL}


def best_entries(entries: Sequence[Entry], sweep: Sweep) -> list[Entry]:
    """The best finished trial; of several objectives the Pareto front, by the first of them.

    Trials of the same values that found the same networks stand once on the front. Of equal ones
    it is the baseline that stands there, or else the first.
    """
    done = [entry for entry in entries if entry.last.state == TrialState.COMPLETE]
    done.sort(key=lambda e: (e.last.values, not is_baseline(sweep, e.last), e.number))
    if done and len(done[0].last.values) == 1:
        return done[:1]
    front = [one for one in done if not any(_dominates(other.last, one.last) for other in done)]
    once: dict[tuple[Any, ...], Entry] = {}
    for entry in front:
        network = network_hashes(entry.last) or entry.number
        once.setdefault((network, *entry.last.values), entry)
    return list(once.values())


def _dominates(one: FrozenTrial, other: FrozenTrial) -> bool:
    pairs = list(zip(one.values, other.values, strict=True))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)
