"""Removing checkpoints and models of trials that are done."""

import shutil
from collections.abc import Sequence

from optuna.trial import FrozenTrial, TrialState

from assembly.sweeping.plan import Sweep
from nas.sweep.queue import Entry, Queue

_FILES = ("*/**/*.safetensors",)
_FOLDERS = ("retrain/*/seed-*/model", "model")


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
        for run in folder.glob("seed-*"):
            for pattern in _FOLDERS:
                for model in run.glob(pattern):
                    shutil.rmtree(model, ignore_errors=True)
            for pattern in _FILES:
                for file in run.glob(pattern):
                    file.unlink(missing_ok=True)
        done.touch()


def _kept(entries: Sequence[Entry], sweep: Sweep) -> set[int]:
    """Numbers of the trials whose files stay."""
    keep = sweep.config.keep
    if "all" in keep:
        return {entry.number for entry in entries}
    numbers = {number for number in keep if isinstance(number, int)}
    if "best" in keep:
        numbers |= {entry.number for entry in best_entries(entries)}
    # A trial that failed may be looked into.
    return numbers | {e.number for e in entries if e.last.state == TrialState.FAIL}


def best_entries(entries: Sequence[Entry]) -> list[Entry]:
    """The best finished trial; of several objectives the Pareto front, by the first of them."""
    done = [entry for entry in entries if entry.last.state == TrialState.COMPLETE]
    done.sort(key=lambda entry: (entry.last.values, entry.number))
    if done and len(done[0].last.values) == 1:
        return done[:1]
    return [one for one in done if not any(_dominates(other.last, one.last) for other in done)]


def _dominates(one: FrozenTrial, other: FrozenTrial) -> bool:
    pairs = list(zip(one.values, other.values, strict=True))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)
