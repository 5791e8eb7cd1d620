"""The gated short convolution of LFM2 (Liquid AI 2025, arXiv 2511.23404, section 2).

B batch   T segment length   M memory length   S = M + T rows   D d_model   W width of the kernel
"""

import torch
from torch import Tensor, nn

from model.blocks.base import linear
from model.blocks.options import ShortConvOptions
from model.ops import Dropout, causal_conv, project
from model.state import Segment


class ShortConvBlock(nn.Module):
    """W_o (g * sum_j w_j u_{t-j}) with u = b * v and (b, g, v) = W_i x, channel by channel.

    It reads the W - 1 inputs before the segment, as attention reads its memory, so that a slot
    keeps what it needs also while other candidates are drawn.
    """

    adds_nothing = False

    def __init__(self, options: ShortConvOptions, d_model: int, dropout: Dropout) -> None:
        super().__init__()
        self.inner = linear(d_model, 3 * d_model, bias=False)
        # Three numbers are multiplied: with weights of 0.02 a narrow model would begin with almost
        # nothing, and with almost no gradient.
        nn.init.normal_(self.inner.weight, std=d_model**-0.5)
        self.kernel_WD = nn.Parameter(torch.empty(options.kernel, d_model))
        nn.init.uniform_(self.kernel_WD, -(options.kernel**-0.5), options.kernel**-0.5)
        self.outer = linear(d_model, d_model, bias=False)
        self.memory_rows = options.kernel - 1

    def forward(
        self, c_BSD: Tensor, segment: Segment, state: Tensor | None
    ) -> tuple[Tensor, Tensor | None, None]:
        """In an evaluation the state holds the gated inputs of the memory, (B, M, D)."""
        b_BSD, gate_BSD, value_BSD = project(c_BSD, self.inner.weight).chunk(3, dim=2)
        u_BSD = b_BSD * value_BSD
        if segment.cached:
            if state is None:
                state = u_BSD.new_zeros(u_BSD.shape[0], self.memory_rows, u_BSD.shape[2])
            u_BSD = torch.cat([state, u_BSD], dim=1)
            state = u_BSD[:, segment.length :].clone()
        else:
            u_BSD = segment.without_invalid(u_BSD, self.memory_rows)
        gate_BTD = gate_BSD[:, gate_BSD.shape[1] - segment.length :]
        gated_BTD = gate_BTD * causal_conv(u_BSD, self.kernel_WD.to(u_BSD.dtype))
        return project(gated_BTD, self.outer.weight), state, None

    def flops(self, batch: int, segment: int, memory: int) -> float:
        """Two projections; the memory is projected anew in each segment."""
        return 2.0 * (
            self.inner.weight.numel() * (1 + memory / segment) + self.outer.weight.numel()
        )
