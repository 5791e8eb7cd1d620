"""What is timed of a model, and how: passes of several models in turn.

B batch   T segment length
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model import LanguageModel, StreamState
from training.config import OptimiserConfig
from training.optim import build_optimiser
from training.state import TrainState
from training.step import Forward, WeightStep
from utils.screen import say
from utils.text import duration

Pass = Callable[[], object]


@dataclass
class TextBatch:
    """The same tokens at every step."""

    input_BT: Tensor
    target_BT: Tensor
    first: bool = False


@dataclass(frozen=True)
class Shapes:
    """What the passes read, and how they are computed.

    Attributes:
        ids_BT: a segment of real text for `latency`; its first tokens for `decode`.
        many_BT: a segment of the streams of a training batch.
        forward: device, precision and kernels of a training step; others: its device.
        optimiser: that of the retraining.
    """

    ids_BT: Tensor
    many_BT: Tensor
    forward: Forward
    optimiser: OptimiserConfig

    @property
    def device(self) -> torch.device:
        """Where the models lie."""
        return self.forward.device

    def key(self, workload: str) -> dict[str, str | int]:
        """What a time of a workload holds for, beside the model."""
        batch, segment = (self.ids_BT if workload in FEW_STREAMS else self.many_BT).shape
        cuda = self.device.type == "cuda"
        return {
            "device": torch.cuda.get_device_name(self.device) if cuda else "cpu",
            "threads": torch.get_num_threads(),
            "dtype": dtype_of(workload, self.forward.precision),
            "batch": batch,
            "segment": 1 if workload == "decode" else segment,
            "torch": torch.__version__,
        }


# Those that read `Shapes.ids_BT`.
FEW_STREAMS = ("latency", "decode")


def dtype_of(workload: str, precision: str) -> str:
    """In what a workload is computed: texts are never read in bfloat16."""
    return precision if workload == "train_step" or precision == "tf32" else "float32"


def prefill(model: LanguageModel, shapes: Shapes) -> Pass:
    """One segment of `ids_BT` behind a full memory: forward and loss."""
    return _reading(model, shapes.ids_BT)


def _reading(model: LanguageModel, ids_BT: Tensor) -> Pass:
    """One segment of streams behind a full memory."""
    state = _full(model, ids_BT, model.initial_state(len(ids_BT)))

    @torch.inference_mode()
    def read() -> None:
        h_BTD, _, _ = model(ids_BT, state)
        model.nll(h_BTD, ids_BT)

    read()
    return read


def decode(model: LanguageModel, shapes: Shapes) -> Pass:
    """One token of each stream behind a full cache, and the probabilities of the next one."""
    ids_BT = shapes.ids_BT
    state = _full(model, ids_BT, model.initial_state(len(ids_BT), cached=True))

    @torch.inference_mode()
    def read() -> None:
        nonlocal state
        # A state is read on from once: its rows would be written over.
        h_B1D, state, _ = model(ids_BT[:, :1], state)
        model.log_prob(h_B1D)

    read()
    return read


@torch.inference_mode()
def _full(model: LanguageModel, ids_BT: Tensor, state: StreamState) -> StreamState:
    """A state whose memories are full."""
    model.eval()
    for _ in range(2 + model.longest_memory // ids_BT.shape[1]):
        _, state, _ = model(ids_BT, state)
    return state


def train_step(model: LanguageModel, shapes: Shapes) -> Pass:
    """A step of the weights as the retraining takes it; its learning rate is 0."""
    model.train()
    state = TrainState(
        model=model,
        optimisers={"weights": build_optimiser(model, shapes.optimiser)},
        streams={"weights": model.initial_state(len(shapes.many_BT))},
        loss_sum=torch.zeros((), dtype=torch.float64, device=shapes.device),
    )
    step = WeightStep(shapes.forward, shapes.optimiser, lambda step: 0.0)
    batch = TextBatch(shapes.many_BT, shapes.many_BT)
    for _ in range(2 + math.ceil(model.longest_memory / shapes.many_BT.shape[1])):
        step(state, batch)
    return partial(step, state, batch)


# By the name of the cost that it measures.
WORKLOADS: dict[str, Callable[[LanguageModel, Shapes], Pass]] = {
    "latency": prefill,
    "decode": decode,
    "train_step": train_step,
    "throughput": lambda model, shapes: _reading(model, shapes.many_BT),
}


# Few short passes would lie in one moment of the machine: up to so many times the rounds are taken,
# until they took so long.
_MOST_TIMES, _LEAST_MS = 16, 3000.0
# A pass that takes as long does not notice what the caches held.
_SHORT_MS = 100.0
# Half the 95% interval of a model's median share of a round, as a part of it or of the mean share:
# where times are less sure than this, they are refused, or marked.
MOST_SPREAD = 0.1
# How long a measurement takes is said where it is longer.
_LONG_S = 5.0

Times = Mapping[str, NDArray[np.float64]]


class Unsteady(ValueError):
    """Times vary too much from round to round."""


@dataclass(frozen=True)
class Latencies:
    """Median milliseconds of one forward pass of each model; none where times were unsteady.

    `note` says what was measured, or why not; `key`, what the figures hold for; `interval_ms`,
    where 95% intervals of the medians lie beside the others', over the rounds of this measurement.
    """

    median_ms: dict[str, float]
    note: str
    key: dict[str, str | int]
    interval_ms: dict[str, tuple[float, float]] = field(default_factory=dict)


def time_in_turn(
    passes: Mapping[str, Callable[[], object]],
    *,
    rounds: int,
    device: torch.device,
    take_unsure: bool = False,
) -> Times:
    """Milliseconds of each pass in each of so many rounds, or in more where they are short.

    In a round every pass is timed once, so that a drift of the machine, or what others do on it,
    meets all of them; every round is then scaled to the median one. Raises `Unsteady` where their
    ratios are not sure all the same, or warns of it and takes them.
    """
    rows, timed_ms = list[list[float]](), 0.0
    while len(rows) < rounds or (timed_ms < _LEAST_MS and len(rows) < _MOST_TIMES * rounds):
        rows.append([_pass_ms(run, device) for run in passes.values()])
        timed_ms += sum(rows[-1])
        round_s = sum(ms if ms >= _SHORT_MS else 2 * ms for ms in rows[0]) / 1e3
        if len(rows) == 1 and rounds * round_s > _LONG_S:
            took = duration(rounds * round_s)
            say(f"measuring {len(passes)} models in {rounds} rounds: about {took}")
    ms_NM = np.array(rows)
    if len(passes) > 1:
        # Where others take turns on the cores a time has two modes, into either of which a median
        # may fall, while the shares of a round, by which the spread is judged, are calm.
        round_N1 = ms_NM.mean(1, keepdims=True)
        ms_NM *= np.median(round_N1) / round_N1
    times = dict(zip(passes, ms_NM.T, strict=True))
    if (spread := spread_of(times)) > MOST_SPREAD:
        unsure = f"a median is uncertain by {spread:.0%} (at most {MOST_SPREAD:.0%} is allowed)"
        if not take_unsure:
            raise Unsteady(
                f"times vary too much: {unsure} after {len(rows)} rounds; start the same command "
                "again when the machine is less busy, with a lower run.threads or a higher "
                "costs.repeats; limit flops, which are counted (derive.budget={flops: 0.65x}); or "
                "set costs.take_unsure=true, which marks the figures"
            )
        say(f"warning: {unsure}; the times are used all the same (costs.take_unsure)")
    return times


def spread_of(times: Times) -> float:
    """Of the least sure median share of a round; 0 of too few rounds to tell.

    What takes less than most counts as they do: a share of little needs no small relative error.
    """
    mean_N, spreads = np.mean(list(times.values()), axis=0), [0.0]
    for ms_N in times.values():
        if (ends := median_interval(ms_N / mean_N)) is not None:
            spreads.append((ends[1] - ends[0]) / max(ends[1] + ends[0], 2.0))
    return max(spreads)


def _pass_ms(run: Callable[[], object], device: torch.device) -> float:
    """A pass behind one of the same model, as in use.

    Behind another model's the caches hold that one's weights and code: the ratio of the times of
    two models then depends on what else is timed
    (`benchmarks.timing_company`).
    """
    ms = _timed_ms(run, device)
    return _timed_ms(run, device) if ms < _SHORT_MS else ms


def _timed_ms(run: Callable[[], object], device: torch.device) -> float:
    if device.type == "cuda":
        event = partial(torch.cuda.Event, enable_timing=True)
        begin, end = event(), event()
        begin.record()
        run()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end))
    began = time.perf_counter()
    run()
    return 1e3 * (time.perf_counter() - began)


def measure_latency(
    models: Mapping[str, LanguageModel], shapes: Shapes, *, rounds: int, take_unsure: bool = False
) -> Latencies:
    """Time one segment of real text (forward and loss, full memory) of every model, in turn."""
    key = shapes.key("latency")
    passes = {name: prefill(model, shapes) for name, model in models.items()}
    try:
        times = time_in_turn(passes, rounds=rounds, device=shapes.device, take_unsure=take_unsure)
    except Unsteady as error:
        return Latencies({}, f"forward latency: not measured: {error}", key)
    taken = len(next(iter(times.values())))
    note = (
        f"forward latency: median of {taken}, in turn, {key['dtype']}, {key['device']}, "
        f"{key['threads']} threads, {key['batch']} x {key['segment']} tokens"
    )
    if (spread := spread_of(times)) > MOST_SPREAD:
        note += f"; uncertain by {spread:.0%}"
    medians = {name: float(np.median(ms_N)) for name, ms_N in times.items()}
    intervals = {name: found for name, ms_N in times.items() if (found := median_interval(ms_N))}
    return Latencies(medians, note, key, intervals)


def median_interval(value_N: NDArray[np.float64]) -> tuple[float, float] | None:
    """A 95% interval of the median, whatever the distribution; None of fewer than 6 values."""
    from scipy.stats import quantile_test  # 0.7 s, for those who measure alone

    low, high = quantile_test(value_N).confidence_interval()
    return None if math.isnan(low) or math.isnan(high) else (float(low), float(high))
