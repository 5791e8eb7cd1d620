"""Whether a model can be held at all, told before memory is taken for it."""

import os

import torch

from assembly.workbench import Workbench
from model import Architecture
from model.shapes import Shapes, shapes_of, shapes_of_architecture

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


def memory_bytes(device: torch.device) -> int:
    """How much memory the machine, or its GPU, has in all."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
