"""The table of a sweep, latencies of its best trials, and whose checkpoints stay."""

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from hpo.study import REASON, STOPPED, Entry
from model import Architecture, build_model
from nas.costs.latency import Latencies
from pipeline.architectures import network_hash
from pipeline.costs import time_models
from pipeline.plan import RunPlan
from pipeline.run_files import remove_weights
from pipeline.sweep.plan import Sweep, is_baseline
from training.runtime import memory_bytes
from utils.pareto import different, unbeaten

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
LOST = "its worker died"
# Where the last attempt ran, and with which version of the program.
_FACTS = ("host", "threads", "gpu", "torch", "commit")


def objectives(sweep: Sweep) -> list[dict[str, str]]:
    """Objectives, all minimised, with units."""
    return [{"name": name, "unit": UNITS[name]} for name in sweep.config.objectives]


def rows(
    sweep: Sweep, entries: Iterable[Entry], latency_ms: Mapping[int, float]
) -> list[dict[str, Any]]:
    """One row for each trial, by number; sizes are means over its seeds."""
    return [_row(sweep, entry, latency_ms.get(entry.number)) for entry in entries]


def runs_of(trial: FrozenTrial) -> dict[str, dict[str, Any]]:
    """Outcomes of an attempt, by seed."""
    runs: dict[str, dict[str, Any]] = trial.user_attrs.get("runs", {})
    return runs


def layouts_of(trial: FrozenTrial) -> str | None:
    """The distinct layouts that the seeds of an attempt found: "a d a / d d a"."""
    return " / ".join(dict.fromkeys(run["layout"] for run in runs_of(trial).values())) or None


def network_hashes(trial: FrozenTrial) -> str | None:
    """Which networks the seeds of an attempt found, as hashes."""
    runs = sorted(runs_of(trial).items(), key=lambda item: int(item[0]))
    return " ".join(network_hash(_parse(run["architecture"]))[:16] for _, run in runs) or None


def _row(sweep: Sweep, entry: Entry, latency_ms: float | None) -> dict[str, Any]:
    last = entry.last
    attributes = last.user_attrs
    return {
        "number": entry.number,
        "state": _state(entry),
        "reason": attributes.get(REASON, LOST if last.state == TrialState.FAIL else None),
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
    if entry.last.state == TrialState.WAITING and len(entry.attempts) > 1:
        return "stopped" if STOPPED in entry.attempts[-2].user_attrs else "waiting"
    return _STATES[entry.last.state]


def _mean(trial: FrozenTrial, fact: str) -> float | None:
    values = [run[fact] for run in runs_of(trial).values()]
    return statistics.mean(values) if values else None


def _went_on_from(trial: FrozenTrial, *, named: bool) -> list[str]:
    """The steps from which the runs of a trial's seeds went on."""
    steps: list[str] = []
    for seed, run in runs_of(trial).items():
        steps += [f"seed {seed}: {step}" if named else step for step in run["went_on_from"]]
    return steps


def _elapsed_s(entry: Entry) -> float | None:
    """Seconds of all attempts, up to when it was seen that they had ended."""
    durations = [
        trial.duration.total_seconds() for trial in entry.attempts if trial.duration is not None
    ]
    return round(sum(durations), 1) if durations else None


def measure(plan: RunPlan, entries: Sequence[Entry]) -> tuple[dict[int, float], Latencies]:
    """Forward milliseconds by trial, the mean over its seeds' architectures.

    Each network is measured once. Weights are fresh: latency does not depend on them.
    Layouts of another tokenizer are left out, since the text that is timed has the ids of the
    experiment's own.
    """
    texts = {text for entry in entries for text in _texts(entry)}
    layouts = {network_hash(layout): layout for layout in map(_parse, sorted(texts))}
    vocabulary = plan.prepared.tokenizer.vocabulary_size
    timed = {key: one for key, one in layouts.items() if one.vocabulary_size == vocabulary}
    latencies = Latencies({}, "forward latency: no finished layout", {})
    medians: dict[str, float] = {}
    groups = list(_groups(timed, memory_bytes(plan.device) // 4))
    for group in groups:
        latencies = time_models(plan, {key: build_model(one) for key, one in group.items()})
        medians |= latencies.median_ms
        if not latencies.median_ms:
            return {}, latencies
    note = latencies.note
    if len(groups) > 1:
        note += f"; in {len(groups)} groups, since not all fit into memory"
    if len(timed) < len(layouts):
        note += f"; {len(layouts) - len(timed)} layouts of another vocabulary not measured"
    return _by_trial(entries, medians), replace(latencies, median_ms=medians, note=note)


def _by_trial(entries: Sequence[Entry], median_ms: Mapping[str, float]) -> dict[int, float]:
    """The mean of each finished trial whose architectures were all measured."""
    means = {}
    for entry in entries:
        keys = [network_hash(_parse(text)) for text in _texts(entry)]
        if keys and all(key in median_ms for key in keys):
            means[entry.number] = statistics.fmean(median_ms[key] for key in keys)
    return means


def _texts(entry: Entry) -> list[str]:
    if entry.last.state != TrialState.COMPLETE:
        return []
    return [run["architecture"] for run in runs_of(entry.last).values()]


def _parse(text: str) -> Architecture:
    return Architecture.from_json(text, "the study")


def _groups(
    layouts: Mapping[str, Architecture], most_bytes: int
) -> Iterator[dict[str, Architecture]]:
    group: dict[str, Architecture] = {}
    held = 0
    for key, architecture in layouts.items():
        assert architecture.costs is not None, "derive.py writes costs"
        needed = 4 * architecture.costs.parameters
        if group and held + needed > most_bytes:
            yield group
            group, held = {}, 0
        group[key] = architecture
        held += needed
    if group:
        yield group


def clean(entries: Sequence[Entry], sweep: Sweep) -> None:
    """Remove what only a resume or a use of the model would need, of all trials not kept."""
    kept = _kept(entries, sweep)
    for entry in entries:
        folder = sweep.paths.trial(entry.number)
        done = folder / "cleaned"
        if not entry.finished or entry.number in kept or not folder.exists() or done.exists():
            continue
        for seed in sweep.config.seeds:
            remove_weights(sweep.paths.seed(entry.number, seed))
        done.touch()


def _kept(entries: Sequence[Entry], sweep: Sweep) -> set[int]:
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
    front = [done[place] for place in unbeaten([entry.last.values for entry in done])]
    networks = [network_hashes(entry.last) or entry.number for entry in front]
    once = different(networks, [entry.last.values for entry in front])
    return [front[place] for place in once]
