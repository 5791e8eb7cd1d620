"""Time of a pass of several models, taken in turn on a quiet machine."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from model import LanguageModel
from nas.costs.workloads import Shapes, prefill
from utils.cores import MOST_OTHER_CORES, other_cores, read_cpu

_REST_S = 2.0
# The counters of the cores tick a hundred times a second: less is too short to be judged.
_JUDGED_MS = 500.0
# Few short passes would lie in one moment of the machine: up to so many times the rounds are taken,
# until they took so long.
_MOST_TIMES, _LEAST_MS = 16, 3000.0

# A pass that takes as long does not notice what the caches held.
_SHORT_MS = 100.0

Times = Mapping[str, NDArray[np.float64]]


class Busy(ValueError):
    """Other processes used the machine for as long as was waited."""


@dataclass(frozen=True)
class Latencies:
    """Median milliseconds of one forward pass of each model; none where the machine was busy.

    `note` says what was measured, or why not; `key`, what the figures hold for; `interval_ms`,
    where 95% intervals of the medians lie, over the rounds of this measurement.
    """

    median_ms: dict[str, float]
    note: str
    key: dict[str, str | int]
    interval_ms: dict[str, tuple[float, float]] = field(default_factory=dict)


def time_in_turn(
    passes: Mapping[str, Callable[[], object]],
    *,
    rounds: int,
    patience_s: float,
    device: torch.device,
) -> Times:
    """Milliseconds of each pass in each of so many quiet rounds, or in more where they are short.

    In a round every pass is timed once, so that a drift of the machine meets all of them; short
    ones run once more before it. Where other processes use more than a quarter of a core meanwhile,
    rounds are thrown away and taken again.

    Raises:
        Busy: they were thrown away and waited for longer than `patience_s`.
    """
    rows: list[list[float]] = []
    timed_ms = waited_s = 0.0

    def wanted(taken: int, in_ms: float) -> bool:
        return taken < rounds or (in_ms < _LEAST_MS and taken < _MOST_TIMES * rounds)

    while wanted(len(rows), timed_ms):
        before, batch, batch_ms = read_cpu(), list[list[float]](), 0.0
        while wanted(len(rows) + len(batch), timed_ms + batch_ms) and batch_ms < _JUDGED_MS:
            batch.append([_pass_ms(run, device) for run in passes.values()])
            batch_ms += sum(batch[-1])
        after = read_cpu()
        others = other_cores(before, after) if before and after else 0.0
        if others <= MOST_OTHER_CORES:
            rows += batch
            timed_ms += batch_ms
            continue
        waited_s += batch_ms / 1e3
        if waited_s >= patience_s:
            waited = f", after {waited_s:.0f} s of waiting for a quiet machine" * (patience_s > 0)
            raise Busy(
                f"other processes used {others:.1f} cores, above {MOST_OTHER_CORES} of a core"
                f"{waited} (start the same command again when they are done, or raise "
                "costs.patience_s)"
            )
        time.sleep(_REST_S)
        waited_s += _REST_S
    return dict(zip(passes, np.array(rows).T, strict=True))


def _pass_ms(run: Callable[[], object], device: torch.device) -> float:
    """A pass behind one of the same model, as in use.

    Behind another model's the caches hold that one's weights and code: the ratio of the times of
    two models then depends on what else is timed
    (`benchmarks.timing_company`).
    """
    ms = _timed_ms(run, device)
    return _timed_ms(run, device) if ms < _SHORT_MS else ms


def _timed_ms(run: Callable[[], object], device: torch.device) -> float:
    _synchronize(device)
    began = time.perf_counter()
    run()
    _synchronize(device)
    return 1e3 * (time.perf_counter() - began)


def _synchronize(device: torch.device) -> None:
    # A GPU is told what to do and not waited for; the clock must wait.
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def unchecked(device: torch.device) -> str:
    """What is not known of the quiet on a device, to be added to a line; mostly nothing."""
    lacks = [] if read_cpu() else ["; whether the machine was quiet could not be checked"]
    if device.type == "cuda":
        lacks.append("; other processes on the GPU are not looked at")
    return "".join(lacks)


def measure_latency(
    models: Mapping[str, LanguageModel], shapes: Shapes, *, rounds: int, patience_s: float
) -> Latencies:
    """Time one segment of real text (forward and loss, full memory) of every model, in turn."""
    device = shapes.device
    key = shapes.key("latency")
    passes = {name: prefill(model, shapes) for name, model in models.items()}
    try:
        times = time_in_turn(passes, rounds=rounds, patience_s=patience_s, device=device)
    except Busy as error:
        return Latencies({}, f"forward latency: not measured: {error}", key)
    taken = len(next(iter(times.values())))
    note = (
        f"forward latency: median of {taken}, in turn, {key['dtype']}, {key['device']}, "
        f"{key['threads']} threads, {key['batch']} x {key['segment']} tokens{unchecked(device)}"
    )
    medians = {name: float(np.median(ms_N)) for name, ms_N in times.items()}
    known = {name: median_interval(ms_N) for name, ms_N in times.items()}
    intervals = {name: interval for name, interval in known.items() if interval is not None}
    return Latencies(medians, note, key, intervals)


def median_interval(value_N: NDArray[np.float64]) -> tuple[float, float] | None:
    """A 95% interval of the median, whatever the distribution; None of fewer than 6 values.

    Between the two values of equal rank from below and above that enclose it surely enough: how
    many values lie below a median is binomial.
    """
    n, below, left_out = len(value_N), 0, 0
    while (below := below + math.comb(n, left_out)) <= 0.025 * 2**n:
        left_out += 1
    ordered = np.sort(value_N)
    return (float(ordered[left_out - 1]), float(ordered[-left_out])) if left_out else None
