"""Attention whose heads learn how far they look back (Sukhbaatar et al. 2019, arXiv 1905.07799).

B batch   T segment length   M memory length   S = M + T keys   D d_model   H heads   K head dim
"""

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.attention_kernels import AttentionInputs, content_queries, score_bias
from model.blocks.attention import AttentionBlock
from model.blocks.base import AddUp, Numbers
from model.blocks.options import AdaptiveSpanOptions, AttentionOptions
from model.ops import Dropout, drop
from model.state import Segment


class AdaptiveSpanBlock(nn.Module):
    """Attention with the mask m(x) = clamp((R + z - x) / R, 0, 1) at distance x (Eq. 3).

    The weights exp(s) m of a query are divided by their sum. z = z' `span` is trained, z' between 0
    and 1, with `span_loss` times the mean z as auxiliary loss (Eq. 6). Keys that no head sees are
    neither read nor kept by an evaluation: that changes no result. The nearest key that a query
    sees has x = 0: its own, or without `sees_itself` the one before it.

    Differs from the paper: by default positions are Transformer-XL's, a query sees itself, and
    heads begin with their whole span. From the paper's code: the sum of the weights is divided by
    as it is, without 1e-8 added to it.
    """

    adds_nothing = False

    def __init__(self, options: AdaptiveSpanOptions, d_model: int, dropout: Dropout) -> None:
        super().__init__()
        self.span, self.ramp, self.span_loss = options.span, options.ramp, options.span_loss
        # The distance of the nearest key.
        self.first = 0 if options.sees_itself else 1
        self.dropout, self.memory_rows = dropout.attention, options.span - 1 + self.first
        inside = AttentionOptions(
            n_heads=options.n_heads, d_head=options.d_head, n_kv_heads=None,
            window=options.span + self.first, memory=self.memory_rows, clamp=None,
            positions="relative" if options.positions == "learned" else options.positions,
            qk_norm=options.qk_norm,
        )  # fmt: skip
        self.attention = (
            _LearnedPositions(inside, d_model, dropout, self.first)
            if options.positions == "learned"
            else AttentionBlock(inside, d_model, dropout)
        )
        self.span_H = nn.Parameter(torch.full((options.n_heads,), options.first_span))

    def forward(
        self, c_BSD: Tensor, segment: Segment, state: Tensor | None
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """The state is attention's, of as many rows as some head sees."""
        share_H = self.span_H.clamp(0.0, 1.0)
        if self.first and not segment.cached:
            c_BSD = segment.without_invalid(c_BSD, self.memory_rows)
        kernel = partial(
            _fading, z_H=share_H * self.span, ramp=self.ramp, first=self.first, span=self.span
        )
        reach = self.reach() + self.first
        delta_BTD, state, _ = self.attention(c_BSD, segment, state, kernel, reach)
        return delta_BTD, state, self.span_loss * self.span * share_H.mean()

    def reach(self) -> int:
        """How many keys the head sees that sees most; of weights that hold no numbers, all."""
        # A compiler would have to guard on the value of a weight: it computes all keys.
        if self.span_H.is_meta or torch.compiler.is_compiling():
            return self.span
        longest = float(self.span_H.detach().clamp(0.0, 1.0).max()) * self.span
        return min(self.span, math.ceil(longest) + self.ramp)

    @torch.no_grad()
    def after_step(self, add_up: AddUp) -> None:
        """Bring the spans back between 0 and 1: beyond, they would have no gradient."""
        self.span_H.clamp_(0.0, 1.0)

    @torch.no_grad()
    def costliest(self) -> None:
        """Every head sees its whole span."""
        self.span_H.fill_(1.0)

    def describe(self) -> Numbers:
        """Of each head z, the keys behind the nearest one that it sees in full."""
        return {"span_keys": (self.span_H.detach().clamp(0.0, 1.0) * self.span).tolist()}

    def flops(self, batch: int, segment: int, memory: int) -> float:
        """Attention's over the whole span, whatever has been learnt."""
        return self.attention.flops(batch, segment, memory)


class _LearnedPositions(AttentionBlock):
    """Attention whose distances, from `first` on, have trained encodings that all heads share."""

    def __init__(
        self, options: AttentionOptions, d_model: int, dropout: Dropout, first: int
    ) -> None:
        super().__init__(options, d_model, dropout)
        assert options.window is not None
        del self.position
        self.first = first
        self.distance_LK = nn.Parameter(torch.randn(options.window - first, options.d_head))

    def _distances(self, segment: Segment, memory: int, like: Tensor) -> Tensor:
        """As in attention; beyond the ends of the table, where no key is seen, its ends."""
        keys, last = memory + segment.length, len(self.distance_LK) - 1
        place_S = torch.arange(keys - 1, -1, -1, device=self.distance_LK.device) - self.first
        r_SK = F.embedding(place_S.clamp(0, last), self.distance_LK).to(like.dtype)
        return r_SK[:, None].expand(-1, self.n_kv_heads, -1)

    def _flops_of_a_distance(self) -> float:
        return 0.0


def _fading(
    inputs: AttentionInputs, rate: float, *, z_H: Tensor, ramp: int, first: int, span: int
) -> Tensor:
    """Attention whose weights fade out over `ramp` keys behind z of them, by head.

    A query sees `span` keys from the distance `first` on. Where that is not its own, the rows of
    zeros before a stream are seen too: its first token would else see nothing at all.
    """
    dtype, device = inputs.k_BSHK.dtype, inputs.k_BSHK.device
    length, keys = inputs.q_BTHK.shape[1], inputs.k_BSHK.shape[1]
    content_BHTK = content_queries(inputs.q_BTHK, inputs.u_HK, dtype)
    query_T1 = torch.arange(keys - length, keys, device=device)[:, None]
    x_TS = query_T1 - torch.arange(keys, device=device) - first
    # In float32 at least: bfloat16 takes neighbours beyond 256 for one.
    wide = torch.promote_types(dtype, torch.float32)
    fading_HTS = ((ramp + z_H.to(wide)[:, None, None] - x_TS) / ramp).clamp(0.0, 1.0)
    if first:
        fading_HTS = fading_HTS.masked_fill((x_TS < 0) | (x_TS >= span), 0.0)
        inputs = inputs._replace(added_BHTS=torch.zeros_like(inputs.added_BHTS))
    score_BHTS = content_BHTK @ inputs.k_BSHK.permute(0, 2, 3, 1) + score_bias(inputs)
    # Left out before the softmax, or the weight of what is seen could be too small to divide by.
    score_BHTS = score_BHTS.to(wide).masked_fill(fading_HTS == 0.0, -math.inf)
    weight_BHTS = torch.softmax(score_BHTS, dim=-1) * fading_HTS
    weight_BHTS = (weight_BHTS / weight_BHTS.sum(dim=-1, keepdim=True)).to(dtype)
    out_BHTK = drop(weight_BHTS, rate, True) @ inputs.value_BSHK.transpose(1, 2)
    return out_BHTK.transpose(1, 2)
