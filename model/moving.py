"""Small tensors to a GPU without making the host wait for it."""

from collections.abc import Sequence

import torch
from torch import Tensor


def moved(tensors: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """The tensors on a device, in one copy, which pinned memory lets run by itself.

    Args:
        tensors: of one dtype and device; flattened where they have to move.
        device: where they are wanted.
    """
    if all(tensor.device == device for tensor in tensors):
        return [tensor.flatten() for tensor in tensors]
    flat_N = torch.cat([tensor.flatten() for tensor in tensors])
    if device.type == "cuda" and flat_N.device.type == "cpu":
        flat_N = flat_N.pin_memory()
    there_N = flat_N.to(device, non_blocking=True)
    return list(torch.split(there_N, [tensor.numel() for tensor in tensors]))
