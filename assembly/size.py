"""Whether a model can be held at all, told before memory is taken for it."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

import torch

from assembly.workbench import Workbench
from model import Architecture
from model.saving import Shapes, shapes_of, shapes_of_architecture

_BYTES = 4


def check_architecture_size(bench: Workbench, architecture: Architecture) -> None:
    """Raise ValueError where a derived model is too large for the device."""
    shapes = shapes_of_architecture(architecture)
    _check(bench, shapes, architecture.d_model, f"architecture {architecture.name}")


def check_supernet_size(bench: Workbench) -> None:
    """Raise ValueError where the SuperNet is too large for the device."""
    config = bench.experiment.model
    shapes = shapes_of(
        [config.completed_candidates()] * config.slots,
        d_model=config.d_model,
        vocabulary_size=bench.prepared.tokenizer.vocabulary_size,
        softmax=bench.softmax,
        tie_slots=config.tie_slots,
    )
    _check(bench, shapes, config.d_model, "model")


def _check(bench: Workbench, shapes: Shapes, d_model: int, what: str) -> None:
    memory = bench.experiment.data.batch * shapes.memory_rows * d_model
    # Weights and gradients; what passes may still be too large with activations and moments.
    needed = _BYTES * (2 * shapes.parameters + memory)
    there = memory_bytes(bench.device)
    if needed > there:
        raise ValueError(
            f"{what}: {shapes.parameters:,} parameters and {shapes.memory_rows:,} memory rows "
            f"a stream need more than {needed / 1e9:,.0f} GB, and {bench.device} has "
            f"{there / 1e9:,.0f} GB; use fewer slots, smaller widths or less memory"
        )


def memory_bytes(device: torch.device, root: Path = Path("/")) -> int:
    """How much memory a GPU has, or this process may take: the machine's, or less in a container.

    Args:
        device: the GPU, or the CPU.
        root: where /proc and /sys are.
    """
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *_group_limits(root)])


def _group_limits(root: Path) -> Iterator[int]:
    """Limits in bytes of the control groups that this process is in, from its own upwards."""
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
