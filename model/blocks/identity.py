"""The identity: the slot passes its input on.

B batch   T segment length   M memory length   S = M + T keys   D d_model
"""

import torch
from torch import Tensor, nn

from model.blocks.options import IdentityOptions
from model.ops import Dropout
from model.state import Segment


class IdentityBlock(nn.Module):
    """A delta of 0, without parameters and without cost."""

    memory_rows = 0
    adds_nothing = True

    def __init__(self, options: IdentityOptions, d_model: int, dropout: Dropout) -> None:
        super().__init__()

    def forward(self, c_BSD: Tensor, segment: Segment, state: None) -> tuple[Tensor, None, None]:
        """Add nothing."""
        return torch.zeros_like(c_BSD[:, c_BSD.shape[1] - segment.length :]), None, None

    def flops(self, batch: int, segment: int, memory: int) -> float:
        """Nothing is computed."""
        return 0.0
