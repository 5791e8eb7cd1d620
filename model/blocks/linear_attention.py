"""Linear attention with a decay: a state of constant size in the place of a memory.

B batch   T segment length   D d_model   H heads   K head dim
"""

from typing import Literal

import torch
from torch import Tensor, nn

from model.blocks.base import HeadOptions, Label, linear
from model.linear_recurrence import decayed, products
from model.ops import Dropout, project, without_autocast
from model.state import Segment


class LinearAttentionOptions(HeadOptions):
    """Options of a linear attention candidate."""

    kind: Literal["linear_attention"] = "linear_attention"
    label: Label = "linear_attention"


class LinearAttentionBlock(nn.Module):
    """W_o (silu(W_g x) * norm(o)) with S_t = a S_{t-1} + k_t v_t^T and o_t = S_t^T q_t, by head.

    Retention (Sun et al. 2023, arXiv 2307.08621, section 2.2). The state S carries over segments.

    Differs from the paper: the decays a begin as there, 1 - 2^(-5-h), and are trained; queries and
    keys are not rotated by their positions.
    """

    memory_rows = 0
    adds_nothing = False
    carries_state = True
    # As in `GatedDeltaBlock`.
    recurrence = staticmethod(decayed)

    def __init__(self, options: LinearAttentionOptions, d_model: int, dropout: Dropout) -> None:
        super().__init__()
        assert not options.missing, options.missing
        self.n_heads, self.d_head = options.n_heads, options.d_head
        width = self.n_heads * self.d_head
        self.inner = linear(d_model, 4 * width, bias=False)
        self.outer = linear(width, d_model, bias=False)
        self.norm = nn.RMSNorm(self.d_head, eps=1e-5)
        decay_H = 1.0 - 2.0 ** (-5.0 - torch.arange(self.n_heads) % 8)
        self.decay_logit_H = nn.Parameter(decay_H.logit())

    def forward(
        self, c_BSD: Tensor, segment: Segment, state: Tensor | None
    ) -> tuple[Tensor, Tensor, None]:
        """The state holds S, (B, H, K, K), in float32 or wider."""
        inner_BTE = project(c_BSD, self.inner.weight)
        wide = torch.promote_types(inner_BTE.dtype, torch.float32)
        heads_BT4HK = inner_BTE.view(*inner_BTE.shape[:2], 4, self.n_heads, self.d_head)
        q_BHTK, k_BHTK, value_BHTK, gate_BHTK = heads_BT4HK.permute(2, 0, 3, 1, 4).to(wide)
        k_BHTK = segment.without_padding(k_BHTK, axis=2) * self.d_head**-0.5
        if state is None:
            state = q_BHTK.new_zeros(*q_BHTK.shape[:2], self.d_head, self.d_head)
        log_decay_H = nn.functional.logsigmoid(self.decay_logit_H.to(wide))
        log_decay_BHT = log_decay_H[:, None].expand(q_BHTK.shape[:3])
        # Sums over many tokens: bfloat16 has too few digits for them.
        with without_autocast(c_BSD.device):
            out_BHTK, state = self.recurrence(q_BHTK, k_BHTK, value_BHTK, log_decay_BHT, state)
        gated_BHTK = self.norm(out_BHTK) * nn.functional.silu(gate_BHTK)
        gated_BTE = gated_BHTK.transpose(1, 2).flatten(2).to(inner_BTE.dtype)
        return project(gated_BTE, self.outer.weight), state, None

    def flops(self, batch: int, segment: int, memory: int) -> float:
        """Projections, and the products of the chunks."""
        projections = 2.0 * (self.inner.weight.numel() + self.outer.weight.numel())
        width = self.d_head
        return projections + products(segment, self.n_heads, width, width, delta=False)
