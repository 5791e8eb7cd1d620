"""Gated DeltaNet (Yang et al. 2024, arXiv 2412.06464).

B batch   T segment length   D d_model   H heads   K head dim   W width of the convolution
E = 3 H K channels of the convolution
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.blocks.base import linear
from model.blocks.linear_attention import gated_delta, products
from model.blocks.options import GatedDeltaOptions
from model.ops import Dropout, causal_conv, project, without_autocast
from model.state import Segment


class GatedDeltaBlock(nn.Module):
    """W_o (silu(W_g x) * norm(o)) with o_t = S_t^T q_t, by head, where a state S is rewritten.

    S_t = a_t (I - b_t k_t k_t^T) S_{t-1} + b_t k_t v_t^T: b_t says how much of what k_t finds is
    replaced by v_t, a_t how fast all is forgotten. q, k and v come from a short convolution, q and
    k have length 1; b = sigmoid(W_b x), log a = -exp(A) softplus(W_a x + c) (section 3.3).
    """

    memory_rows = 0
    adds_nothing = False
    carries_state = True
    # An exporter puts the same recurrence token by token here.
    recurrence = staticmethod(gated_delta)

    def __init__(self, options: GatedDeltaOptions, d_model: int, dropout: Dropout) -> None:
        super().__init__()
        self.n_heads, self.d_head = options.n_heads, options.d_head
        width = self.n_heads * self.d_head
        self.inner = linear(d_model, 4 * width + 2 * self.n_heads, bias=False)
        self.outer = linear(width, d_model, bias=False)
        self.norm = nn.RMSNorm(self.d_head, eps=1e-5)
        self.kernel_WE = nn.Parameter(torch.empty(options.kernel, 3 * width))
        nn.init.uniform_(self.kernel_WE, -(options.kernel**-0.5), options.kernel**-0.5)
        # As Mamba 2 begins: rates from 1 to 16, steps from 0.001 to 0.1, both log-uniform here.
        self.log_rate_H = nn.Parameter(torch.empty(self.n_heads).uniform_(0.0, 2.7726))
        step_H = torch.empty(self.n_heads).uniform_(-6.9078, -2.3026).exp()
        self.step_bias_H = nn.Parameter(torch.log(torch.expm1(step_H)))

    def forward(
        self, c_BSD: Tensor, segment: Segment, state: Tensor | None
    ) -> tuple[Tensor, Tensor, None]:
        """The state holds S and the inputs of the convolution, (B, H K K + (W-1) E)."""
        heads, width = self.n_heads, self.n_heads * self.d_head
        inner_BTE = project(c_BSD, self.inner.weight)
        wide = torch.promote_types(inner_BTE.dtype, torch.float32)
        parts = torch.split(inner_BTE.to(wide), [3 * width, width, heads, heads], dim=2)
        mixed_BTE, gate_BTE, beta_BTH, step_BTH = parts
        matrix_BHKV, before_BWE = self._state_of(state, mixed_BTE)
        mixed_BTE = segment.without_padding(mixed_BTE, axis=1)
        rows_BSE = torch.cat([before_BWE, mixed_BTE], dim=1)
        before_BWE = rows_BSE[:, segment.length :]
        shaped_BTE = F.silu(causal_conv(rows_BSE, self.kernel_WE.to(wide)))
        shaped_BT3HK = shaped_BTE.view(*shaped_BTE.shape[:2], 3, heads, self.d_head)
        q_BHTK, k_BHTK, value_BHTK = shaped_BT3HK.permute(2, 0, 3, 1, 4)
        rate_H, bias_H = self.log_rate_H.to(wide).exp(), self.step_bias_H.to(wide)
        log_decay_BTH = -rate_H * F.softplus(step_BTH + bias_H)
        # Sums over many tokens: bfloat16 has too few digits for them.
        with without_autocast(c_BSD.device):
            out_BHTK, matrix_BHKV = self.recurrence(
                F.normalize(q_BHTK, dim=-1, eps=1e-6) * self.d_head**-0.5,
                F.normalize(k_BHTK, dim=-1, eps=1e-6),
                value_BHTK,
                torch.sigmoid(beta_BTH).transpose(1, 2),
                log_decay_BTH.transpose(1, 2),
                matrix_BHKV,
            )
        gated_BTE = self.norm(out_BHTK).transpose(1, 2).flatten(2) * F.silu(gate_BTE)
        state = torch.cat([matrix_BHKV.flatten(1), before_BWE.flatten(1)], dim=1)
        return project(gated_BTE.to(inner_BTE.dtype), self.outer.weight), state, None

    def _state_of(self, state: Tensor | None, like_BTE: Tensor) -> tuple[Tensor, Tensor]:
        """S and the last inputs of the convolution; 0 where a stream starts."""
        batch, _, channels = like_BTE.shape
        shape_HKV = (self.n_heads, self.d_head, self.d_head)
        shape_WE = (len(self.kernel_WE) - 1, channels)
        sizes = [self.n_heads * self.d_head**2, shape_WE[0] * channels]
        if state is None:
            state = like_BTE.new_zeros(batch, sum(sizes))
        matrix, before = torch.split(state, sizes, dim=1)
        return matrix.view(batch, *shape_HKV), before.view(batch, *shape_WE)

    def flops(self, batch: int, segment: int, memory: int) -> float:
        """Projections, and the products and solutions of the chunks."""
        projections = 2.0 * (self.inner.weight.numel() + self.outer.weight.numel())
        width = self.d_head
        return projections + products(segment, self.n_heads, width, width, delta=True)
