"""Whether a run fits the memory of its device: sizes, the forecast of a phase, what is missing."""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path, PurePosixPath

import numpy as np
import torch
from torch import Tensor

from model import Architecture
from model.saving import Shapes, shapes_of, shapes_of_architecture
from nas.search.estimators import HARD
from nas.search.step import SearchStep
from pipeline.context import RunPlan
from training.layer_dropout import LayerDropoutStep
from training.memory import Forecast, Maker, forecast
from training.state import Batch, Step, TrainState
from training.step import Forward, WeightStep

FLOAT32_BYTES = 4
# Seen: 0.58 MB for each shape of a product, of which 1024 are kept; tails have new ones each step.
_KERNELS = (
    "besides, oneDNN keeps a kernel for each shape of a bfloat16 product, in time up to 600 MB; "
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY=64 in the environment keeps 40"
)


def check_architecture_size(architecture: Architecture, streams: int, device: torch.device) -> None:
    """Raise ValueError where a derived model is too large for the device."""
    shapes = shapes_of_architecture(architecture)
    what = f"architecture {architecture.name}"
    _check_size(shapes, architecture.d_model, streams, device, what)


def check_supernet_size(plan: RunPlan) -> None:
    """Raise ValueError where the SuperNet is too large for the device."""
    entangle, streams = plan.experiment.model.entangle, plan.experiment.data.batch
    shapes = shapes_of(plan.slots, **plan.sizes, entangle=entangle)
    _check_size(shapes, plan.sizes["d_model"], streams, plan.device, "model")


def _check_size(
    shapes: Shapes, d_model: int, streams: int, device: torch.device, what: str
) -> None:
    # Weights and gradients; what passes may still be too large with activations and moments.
    needed = FLOAT32_BYTES * (2 * shapes.parameters + streams * shapes.memory_rows * d_model)
    available = memory_bytes(device)
    if needed > available:
        raise ValueError(
            f"{what}: {shapes.parameters:,} parameters and {shapes.memory_rows:,} memory rows "
            f"a stream need more than {needed / 1e9:,.0f} GB, and {device} has "
            f"{available / 1e9:,.0f} GB; use fewer slots, smaller widths or less memory"
        )


def memory_bytes(device: torch.device, root: Path = Path("/")) -> int:
    """How much memory a GPU has, or this process may take: the machine's, or less in a container.

    `root` is where /proc and /sys are.
    """
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *_group_limits(root)])


def _group_limits(root: Path) -> Iterator[int]:
    """Yield the bytes allowed to the control groups that this process is in, its own first."""
    lines = list[str]()
    with suppress(OSError):  # Linux alone has them
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if not controllers:  # version 2
            mount, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            mount, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        path = PurePosixPath(group).relative_to("/")
        # A container sees its own group as the mount, whatever the name that the host has for it.
        above = [] if ".." in path.parts else [path, *path.parents]
        for folder in [*above, PurePosixPath()]:
            # The topmost group of the machine has no such file, and no limit is the word "max".
            with suppress(OSError, ValueError):
                yield int((mount / folder / name).read_text())


@dataclass(frozen=True)
class _OneBatch:
    """A text that is the same batch at every step."""

    whole: Batch

    def batch(self, index: int) -> Batch:
        return self.whole


def search_memory(step: SearchStep, state: TrainState, batch: Batch) -> Forecast:
    """The memory of a search: a step in which alpha moves, under the greediest draw.

    Where a step computes the drawn candidates alone, each choice of them is tried in all slots.
    """

    def maker(noise_LC: Tensor) -> Maker:
        return lambda forward, batch: replace(
            step,
            weight_step=replace(step.weight_step, forward=forward),
            alpha_batches=None if step.alpha_batches is None else _OneBatch(batch),
            noise=lambda *_: noise_LC,
        )

    config = step.plan.config
    slots, count = state.parameters["alpha"].shape
    names = (config.weights_estimator, config.alpha_estimator)
    computed = max(HARD.get(name) or 0 for name in names)
    makers = [maker(noise_LC) for noise_LC in _draws(slots, computed, count)]
    return forecast(state, batch, step.weight_step.forward, makers, step.plan.alpha_start)


def _draws(slots: int, computed: int, count: int) -> Iterator[Tensor]:
    """Noise under which every slot draws the same candidates first, for each order of them."""
    for drawn in permutations(range(count), min(computed, count)):
        places = torch.tensor(drawn, dtype=torch.int64)
        noise_C = torch.zeros(count).index_put_((places,), 1e3 / (1.0 + torch.arange(len(drawn))))
        yield noise_C.expand(slots, count)


def retrain_memory(
    step: WeightStep | LayerDropoutStep, state: TrainState, batch: Batch
) -> Forecast:
    """The memory of a retraining: a step that leaves out no slot."""

    def maker(forward: Forward, batch: Batch) -> Step:
        if isinstance(step, WeightStep):
            return replace(step, forward=forward)
        inner = replace(step.weight_step, forward=forward)
        return replace(step, weight_step=inner, draw=lambda *key: np.ones(key[-1]))

    forward = step.forward if isinstance(step, WeightStep) else step.weight_step.forward
    return forecast(state, batch, forward, [maker])


@dataclass(frozen=True)
class MemoryNotes:
    """Lines of a phase's summary, and why it may take no step, the same in all processes."""

    lines: list[str]
    refusal: str | None


def memory_notes(
    needed: Forecast, growing: Sequence[str], forward: Forward, folder: Path, *, ignore: bool
) -> MemoryNotes:
    """Compare a forecast with what the device has for each process of the run.

    Args:
        needed: the forecast.
        growing: labels whose blocks may come to need more (`LanguageModel.may_cost_more`).
        forward: on which device, and which processes.
        folder: the phase's; where it is claimed, what makes the phase what it is may not change.
        ignore: whether a shortage is a warning only (`run.ignore_memory_forecast`).
    """
    parts = (
        f"weights {_mb(needed.weights)}, gradients {_mb(needed.gradients)}, optimiser "
        f"{_mb(needed.optimiser)}, streams {_mb(needed.streams)}, activations "
        f"{_mb(needed.activations)}, overhead {_mb(needed.overhead)}"
    )
    lines = [f"memory: about {_mb(needed.total)} MB beyond start ({parts})"]
    if growing:
        lines.append(
            f"memory may grow beyond that: {', '.join(growing)} may learn to see more than at first"
        )
    if (forward.device.type, forward.precision) == ("cpu", "bfloat16"):
        lines.append(_KERNELS)
    sharing = forward.ranks.local_world if forward.device.type == "cpu" else 1
    available = memory_bytes(forward.device) // sharing
    claimed = (folder / "identity.json").exists()
    # All processes must refuse together, and another machine may have more memory.
    shortage = forward.ranks.first_message(
        memory_shortage(needed, forward, available, claimed=claimed)
    )
    if shortage is None:
        return MemoryNotes(lines, None)
    if ignore:
        return MemoryNotes([*lines, f"warning: {shortage}"], None)
    remedy = "--set run.ignore_memory_forecast=true trains all the same"
    return MemoryNotes(lines, f"{shortage}; {remedy}")


def memory_shortage(
    needed: Forecast, forward: Forward, available: int, *, claimed: bool
) -> str | None:
    """What is missing where a forecast exceeds the bytes that a process may take; the remedies."""
    if needed.total <= available:
        return None
    remedies = [] if forward.recompute else ["set run.recompute=true"]
    remedies.append(f"raise run.micro_batches (now {forward.micro_batches})")
    if not claimed:
        remedies.append("lower data.batch")
    *others, last = remedies
    several = forward.ranks.local_world > 1 and forward.device.type == "cpu"
    return (
        f"about {_mb(needed.total)} MB of memory are needed, and {forward.device} has "
        f"{_mb(available)} MB{' for each process' * several}: "
        f"{', '.join(others)}{', or ' * bool(others)}{last}"
    )


def _mb(size: int) -> str:
    return f"{size / 1e6:,.0f}" if size >= 9.5e5 else f"{size / 1e6:.1g}"
