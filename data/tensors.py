"""Handing ids to torch.

Torch is imported only when a batch is asked for: reading a config or a `--help` stays instant.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor


def to_tensor(array: NDArray[Any]) -> "Tensor":
    """A tensor with its own memory: int64 for ids, bool for masks."""
    import torch

    dtype = np.bool_ if array.dtype == np.bool_ else np.int64
    return torch.from_numpy(np.array(array, dtype=dtype))
