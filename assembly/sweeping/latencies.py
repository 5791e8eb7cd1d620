"""Latencies of all finished layouts together, in turn, when no trial runs."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from optuna.trial import TrialState

from assembly.models import network_hash
from assembly.size import memory_bytes
from assembly.sweeping.rows import runs_of
from assembly.timing import time_models
from assembly.workbench import Workbench
from hpo.queue import Entry
from model import Architecture, build_model
from nas.costs.latency import Latencies

_BYTES = 4


def measure(bench: Workbench, entries: Sequence[Entry]) -> tuple[dict[int, float], Latencies]:
    """Forward milliseconds by trial, the mean over its seeds' architectures.

    Each network is measured once. Weights are fresh: latency does not depend on them.
    Layouts of another tokenizer are left out, since the text that is timed has the ids of the
    experiment's own.
    """
    found = _architectures(entries)
    own = bench.prepared.tokenizer.vocabulary_size
    kept = {key: each for key, each in found.items() if each.vocabulary_size == own}
    latencies = Latencies({}, "forward latency: no finished layout", {})
    medians: dict[str, float] = {}
    groups = list(_groups(kept, memory_bytes(bench.device) // 4))
    for group in groups:
        latencies = time_models(bench, {key: build_model(each) for key, each in group.items()})
        medians |= latencies.median_ms
        if not latencies.median_ms:
            return {}, latencies
    note = latencies.note
    if len(groups) > 1:
        note += f"; in {len(groups)} groups, since not all fit into memory"
    if len(kept) < len(found):
        note += f"; {len(found) - len(kept)} layouts of another vocabulary not measured"
    return _by_trial(entries, medians), replace(latencies, median_ms=medians, note=note)


def _architectures(entries: Sequence[Entry]) -> dict[str, Architecture]:
    """An architecture of each network of finished trials, by its hash."""
    texts = {text for entry in entries for text in _texts(entry)}
    return {network_hash(each): each for each in map(_parse, sorted(texts))}


def _by_trial(entries: Sequence[Entry], median_ms: Mapping[str, float]) -> dict[int, float]:
    """The mean of each finished trial whose architectures were all measured."""
    found = {}
    for entry in entries:
        keys = [network_hash(_parse(text)) for text in _texts(entry)]
        if keys and all(key in median_ms for key in keys):
            found[entry.number] = statistics.fmean(median_ms[key] for key in keys)
    return found


def _texts(entry: Entry) -> list[str]:
    """The architecture of each seed of a finished trial."""
    if entry.last.state != TrialState.COMPLETE:
        return []
    return [run["architecture"] for run in runs_of(entry.last).values()]


def _parse(text: str) -> Architecture:
    return Architecture.from_json(text, "the study")


def _groups(
    found: Mapping[str, Architecture], most_bytes: int
) -> Iterator[dict[str, Architecture]]:
    group: dict[str, Architecture] = {}
    held = 0
    for key, architecture in found.items():
        assert architecture.costs is not None, "derive.py writes costs"
        needed = _BYTES * architecture.costs.parameters
        if group and held + needed > most_bytes:
            yield group
            group, held = {}, 0
        group[key] = architecture
        held += needed
    if group:
        yield group
