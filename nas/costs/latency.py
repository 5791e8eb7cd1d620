"""Forward latency of several models, measured in turn on a quiet machine."""

import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from model import LanguageModel, StreamState
from utils.cores import MOST_OTHER_CORES, other_cores, read_cpu

_TRIES = 3
_REST_S = 2.0


@dataclass(frozen=True)
class Latencies:
    """Median milliseconds of one forward pass of each model; none where the machine was busy.

    `note` says what was measured, or why not; `key`, what the figures hold for.
    """

    median_ms: dict[str, float]
    note: str
    key: dict[str, str | int]


def measure_latency(
    models: Mapping[str, LanguageModel],
    *,
    ids_BT: Tensor,
    repeats: int,
    device: torch.device,
) -> Latencies:
    """Time one segment of real text (forward and loss, full memory) of every model, in turn.

    The models alternate, so that a drift of the machine meets all of them. Where other processes
    use more than a quarter of a core meanwhile, the pass is thrown away and tried again later.
    """
    batch, segment = ids_BT.shape
    key: dict[str, str | int] = {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
        "dtype": "float32",
        "batch": batch,
        "segment": segment,
        "torch": torch.__version__,
    }
    states = {name: _warm(model, ids_BT) for name, model in models.items()}
    busy = 0.0
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(_REST_S)
        before = read_cpu()
        times = _times_ms(models, states, ids_BT, repeats, device)
        after = read_cpu()
        busy = other_cores(before, after) if before and after else 0.0
        if busy <= MOST_OTHER_CORES:
            medians = {name: statistics.median(values) for name, values in times.items()}
            note = (
                f"forward latency: median of {repeats}, in turn, {key['device']}, "
                f"{key['threads']} threads, {batch} x {segment} tokens"
            ) + ("" if before else "; whether the machine was quiet could not be checked")
            return Latencies(medians, note, key)
    note = (
        f"forward latency: not measured, other processes used {busy:.1f} cores "
        "(start the same command again on a quiet machine)"
    )
    return Latencies({}, note, key)


@torch.inference_mode()
def _warm(model: LanguageModel, ids_BT: Tensor) -> StreamState:
    """A stream state whose memories are full."""
    model.eval()
    batch, segment = ids_BT.shape
    state = model.initial_state(batch)
    rows = max((m.shape[1] for m in state.memory if m is not None), default=0)
    for _ in range(2 + rows // segment):
        h_BTD, state, _ = model(ids_BT, state)
        model.nll(h_BTD, ids_BT)
    return state


@torch.inference_mode()
def _times_ms(
    models: Mapping[str, LanguageModel],
    states: Mapping[str, StreamState],
    ids_BT: Tensor,
    repeats: int,
    device: torch.device,
) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in models}

    def synchronize() -> None:
        # A GPU is told what to do and not waited for; the clock must wait.
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    for _ in range(repeats):
        for name, model in models.items():
            synchronize()
            began = time.perf_counter()
            h_BTD, _, _ = model(ids_BT, states[name])
            model.nll(h_BTD, ids_BT)
            synchronize()
            times[name].append(1e3 * (time.perf_counter() - began))
    return times
