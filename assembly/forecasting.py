"""What a phase says of the memory that it will take."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path

import torch
from torch import Tensor

from assembly.size import memory_bytes
from assembly.workbench import Workbench
from nas.search.estimators import HARD
from nas.search.step import SearchStep
from training.loop import Batch, Step, TrainState
from training.memory import Forecast, Maker, forecast
from training.step import Forward, WeightStep

# Seen: 0.58 MB for each shape of a product, of which 1024 are kept; tails have new ones each step.
_KERNELS = (
    "besides, oneDNN keeps a kernel for each shape of a bfloat16 product, in time up to 600 MB; "
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY=64 in the environment keeps 40"
)


@dataclass(frozen=True)
class _Same:
    """A text that is one batch."""

    whole: Batch

    def batch(self, index: int) -> Batch:
        return self.whole


def search_memory(step: SearchStep, state: TrainState, batch: Batch) -> Forecast:
    """The memory of a search: a step in which alpha moves, under the greediest draw.

    Where a step computes the drawn candidates alone, each choice of them is tried in all slots.
    """
    config = step.plan.config
    slots, count = state.parameters["alpha"].shape
    names = (config.weights_estimator, config.alpha_estimator)
    computed = max(HARD.get(name) or 0 for name in names)
    makers = [_maker(step, noise_LC) for noise_LC in _draws(slots, computed, count)]
    return forecast(state, batch, step.weight_step.forward, makers, step.plan.alpha_start)


def _draws(slots: int, computed: int, count: int) -> Iterator[Tensor]:
    """Noise under which every slot draws the same candidates first, for each order of them."""
    for drawn in permutations(range(count), min(computed, count)):
        places = torch.tensor(drawn, dtype=torch.int64)
        noise_C = torch.zeros(count).index_put_((places,), 1e3 / (1.0 + torch.arange(len(drawn))))
        yield noise_C.expand(slots, count)


def _maker(step: SearchStep, noise_LC: Tensor) -> Maker:
    def make(forward: Forward, batch: Batch) -> Step:
        return replace(
            step,
            weight_step=replace(step.weight_step, forward=forward),
            alpha_batches=None if step.alpha_batches is None else _Same(batch),
            noise=lambda *_: noise_LC,
        )

    return make


def retrain_memory(step: WeightStep, state: TrainState, batch: Batch) -> Forecast:
    """The memory of a retraining."""

    def make(forward: Forward, batch: Batch) -> Step:
        return replace(step, forward=forward)

    return forecast(state, batch, step.forward, [make])


@dataclass(frozen=True)
class MemoryNotes:
    """What a phase says of its forecast.

    Attributes:
        lines: of its summary.
        refusal: why it may take no step, the same in all processes; None where it may.
    """

    lines: list[str]
    refusal: str | None


def memory_notes(bench: Workbench, found: Forecast, folder: Path) -> MemoryNotes:
    """Compare a forecast with what the device has for each process of the run.

    Args:
        bench: where it trains.
        found: the forecast.
        folder: the phase's; where it is claimed, what makes the phase what it is may not change.
    """
    sharing = bench.ranks.local_world if bench.device.type == "cpu" else 1
    available = memory_bytes(bench.device) // sharing
    claimed = (folder / "identity.json").exists()
    shortage = bench.ranks.first_words(
        memory_shortage(found, bench.forward, available, claimed=claimed)
    )
    lines = forecast_lines(found, bench.forward)
    if shortage is None:
        return MemoryNotes(lines, None)
    if bench.experiment.run.ignore_memory_forecast:
        return MemoryNotes([*lines, f"warning: {shortage}"], None)
    remedy = "--set run.ignore_memory_forecast=true trains all the same"
    return MemoryNotes(lines, f"{shortage}; {remedy}")


def forecast_lines(found: Forecast, forward: Forward) -> list[str]:
    """The forecast, and what it leaves out."""
    parts = (
        f"weights {_mb(found.weights)}, gradients {_mb(found.gradients)}, optimiser "
        f"{_mb(found.optimiser)}, streams {_mb(found.streams)}, activations "
        f"{_mb(found.activations)}, gaps {_mb(found.gaps)}"
    )
    lines = [f"memory: about {_mb(found.total)} MB beyond start ({parts})"]
    if (forward.device.type, forward.precision) == ("cpu", "bfloat16"):
        lines.append(_KERNELS)
    return lines


def memory_shortage(
    found: Forecast, forward: Forward, available: int, *, claimed: bool
) -> str | None:
    """What is missing where a forecast exceeds the bytes that a process may take; the remedies."""
    if found.total <= available:
        return None
    remedies = [] if forward.recompute else ["set run.recompute=true"]
    remedies.append(f"raise run.micro_batches (now {forward.micro_batches})")
    if not claimed:
        remedies.append("lower data.batch")
    *others, last = remedies
    several = forward.ranks.local_world > 1 and forward.device.type == "cpu"
    return (
        f"about {_mb(found.total)} MB of memory are needed, and {forward.device} has "
        f"{_mb(available)} MB{' for each process' * several}: "
        f"{', '.join(others)}{', or ' * bool(others)}{last}"
    )


def _mb(size: int) -> str:
    return f"{size / 1e6:,.0f}" if size >= 9.5e5 else f"{size / 1e6:.1g}"
