"""The trials of a sweep as rows: what trials.csv, sweep.json and the report say of each."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from assembly.models import network_hash
from assembly.sweeping.plan import Sweep
from assembly.sweeping.settings import is_baseline
from hpo.queue import LOST, REASON, STOPPED, Entry
from model import Architecture

UNITS = {
    "retrained": "bits per byte of validation",
    "onehot": "bits per byte of validation, SuperNet",
    "flops": "FLOPs per token",
    "parameters": "parameters",
}
_STATES = {
    TrialState.COMPLETE: "done",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
    TrialState.RUNNING: "running",
    TrialState.WAITING: "waiting",
}
# Where the last attempt ran, and with which version of the program.
_FACTS = ("host", "threads", "gpu", "torch", "commit")


def objectives(sweep: Sweep) -> list[dict[str, str]]:
    """What is minimised, with units."""
    return [{"name": name, "unit": UNITS[name]} for name in sweep.config.objectives]


def rows(
    sweep: Sweep, entries: Iterable[Entry], latency_ms: Mapping[int, float]
) -> list[dict[str, Any]]:
    """One row for each trial, by number; sizes are means over its seeds.

    Args:
        sweep: the sweep.
        entries: its trials.
        latency_ms: by trial, where it was measured.
    """
    return [_row(sweep, entry, latency_ms.get(entry.number)) for entry in entries]


def runs_of(trial: FrozenTrial) -> dict[str, dict[str, Any]]:
    """What each seed of an attempt came to, by seed."""
    found: dict[str, dict[str, Any]] = trial.user_attrs.get("runs", {})
    return found


def layouts_of(trial: FrozenTrial) -> str | None:
    """The distinct layouts that the seeds of an attempt found: "a d a / d d a"."""
    return " / ".join(dict.fromkeys(run["layout"] for run in runs_of(trial).values())) or None


def network_hashes(trial: FrozenTrial) -> str | None:
    """Which networks the seeds of an attempt found, as hashes; None where that is not known."""
    runs = sorted(runs_of(trial).items(), key=lambda item: int(item[0]))
    try:
        found = [Architecture.from_json(run["architecture"], "the study") for _, run in runs]
    except ValueError:
        return None
    return " ".join(network_hash(architecture)[:16] for architecture in found) or None


def _row(sweep: Sweep, entry: Entry, latency_ms: float | None) -> dict[str, Any]:
    last = entry.last
    attributes = last.user_attrs
    return {
        "number": entry.number,
        "state": _state(entry),
        "reason": attributes.get(REASON),
        "baseline": is_baseline(sweep, last),
        "values": last.values if last.state == TrialState.COMPLETE else None,
        # Of one that waits again, those that its next attempt will have.
        "params": last.params or last.system_attrs.get("fixed_params", {}),
        "seeds": {seed: run["values"] for seed, run in runs_of(last).items()},
        "layout": layouts_of(last),
        "network": network_hashes(last),
        "parameters": _mean(last, "parameters"),
        "flops_per_token": _mean(last, "flops_per_token"),
        "latency_ms": latency_ms,
        "attempts": sum(trial.state != TrialState.WAITING for trial in entry.attempts),
        "went_on_from": _went_on_from(last, named=len(sweep.config.seeds) > 1),
        "elapsed_s": _elapsed_s(entry),
        **{fact: attributes.get(fact) for fact in _FACTS},
    }


def _state(entry: Entry) -> str:
    attempts: Sequence[Any] = entry.attempts
    if entry.last.state == TrialState.WAITING and len(attempts) > 1:
        return "stopped" if attempts[-2].user_attrs.get(LOST) == STOPPED else "waiting"
    return _STATES[entry.last.state]


def _mean(trial: FrozenTrial, fact: str) -> float | None:
    found = [run[fact] for run in runs_of(trial).values()]
    return statistics.mean(found) if found else None


def _went_on_from(trial: FrozenTrial, *, named: bool) -> list[str]:
    """Where the whole trial began anew, and from which steps the runs of its seeds went on."""
    found = list(trial.user_attrs.get("went_on_from", []))
    for seed, run in runs_of(trial).items():
        found += [f"seed {seed}: {step}" if named else step for step in run["went_on_from"]]
    return found


def _elapsed_s(entry: Entry) -> float | None:
    """Seconds of all attempts but those whose worker was lost: nobody saw when those ended."""
    durations = [
        trial.duration.total_seconds()
        for trial in entry.attempts
        if trial.duration is not None and trial.user_attrs.get(LOST, STOPPED) == STOPPED
    ]
    return round(sum(durations), 1) if durations else None
