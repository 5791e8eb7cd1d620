"""Relative multi-head attention (Dai et al. 2019, section 3.3).

B batch   T segment length   M memory length   S = M + T keys   D d_model   H heads   K head dim
"""

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from model.blocks.base import LEFT_OUT, BlockOptions, Label, linear
from model.dropout import Dropout


class AttentionOptions(BlockOptions):
    """Options of an attention candidate."""

    adjustable: ClassVar[frozenset[str]] = frozenset({"memory", "window", "clamp"})
    added: ClassVar[Mapping[str, Any]] = {"clamp": None}

    kind: Literal["attention"] = "attention"
    label: Label = "attention"
    n_heads: int = Field(default=LEFT_OUT, ge=1, le=4096, description="Heads.")
    d_head: int = Field(
        default=LEFT_OUT, ge=1, le=2**16, description="Width of a head (default d_model / n_heads)."
    )
    window: int | None = Field(
        default=LEFT_OUT,
        ge=1,
        le=2**30,
        description="Keys a query sees, itself included; null: all.",
    )
    memory: int = Field(
        default=LEFT_OUT, ge=0, le=2**20, description="Rows of memory; a window needs window - 1."
    )
    clamp: int | None = Field(
        default=LEFT_OUT,
        ge=0,
        le=2**30,
        description="Keys further away than this are encoded as if they were this far; null: none.",
    )

    @staticmethod
    def _derived(values: dict[str, Any], d_model: int) -> dict[str, Any]:
        if values["d_head"] is not None:
            return values
        n_heads = values["n_heads"]
        if d_model % n_heads:
            raise ValueError(
                f"n_heads: {n_heads} does not divide d_model {d_model}; "
                "give d_head or another n_heads"
            )
        return {**values, "d_head": d_model // n_heads}


class AttentionBlock(nn.Module):
    """Attention over the memory and the segment up to the query.

    score_ij = ((q_i + u) . k_j + (q_i + v) . W_r R_{M+i-j}) / sqrt(d_head), for keys j <= M + i
    that lie inside the window and, in the memory, are valid. u and v belong to the slot. With a
    clamp N, the encoding of a distance above N is R_N (Transformer-XL's clamp_len), so that an
    evaluation with more memory meets no distance that training did not.

    Differs from the paper: u and v are not shared by all slots, and a window can be given.
    """

    adds_nothing = False

    def __init__(self, options: AttentionOptions, d_model: int, dropout: Dropout) -> None:
        super().__init__()
        assert not options.missing, options.missing
        self.n_heads, self.d_head = options.n_heads, options.d_head
        self.window, self.clamp = options.window, options.clamp
        self.dropout = dropout.attention
        width = self.n_heads * self.d_head
        self.query = linear(d_model, width, bias=False)
        self.key_value = linear(d_model, 2 * width, bias=False)
        self.position = linear(d_model, width, bias=False)
        self.output = linear(width, d_model, bias=False)
        self.u_HK = nn.Parameter(torch.zeros(self.n_heads, self.d_head))
        self.v_HK = nn.Parameter(torch.zeros(self.n_heads, self.d_head))
        within = options.memory if self.window is None else self.window - 1
        self.memory_rows = min(options.memory, within)

    def forward(self, c_BSD: Tensor, valid_BM: Tensor, state: None) -> tuple[Tensor, None, None]:
        """Attend from every token of the segment."""
        memory, heads = valid_BM.shape[1], (self.n_heads, self.d_head)
        scale = self.d_head**-0.5
        q_BTHK = self.query(c_BSD[:, memory:]).unflatten(-1, heads) * scale
        k_BSHK, value_BSHK = self.key_value(c_BSD).unflatten(-1, (2, *heads)).unbind(2)
        r_SD = sinusoid(c_BSD.shape[1], c_BSD.shape[2], clamp=self.clamp, like=c_BSD)
        r_SHK = self.position(r_SD).unflatten(-1, heads)

        # u and v stand in the formula beside the unscaled query.
        content_BHTK = (q_BTHK + self.u_HK * scale).transpose(1, 2)
        score_BHTS = content_BHTK @ k_BSHK.permute(0, 2, 3, 1)
        score_BHTS = score_BHTS + self._mask(valid_BM, q_BTHK).to(score_BHTS.dtype)
        score_BHTS = score_BHTS + _position_scores(q_BTHK + self.v_HK * scale, r_SHK)
        # Written out: F.scaled_dot_product_attention with this bias is no faster on a CPU.
        weight_BHTS = F.dropout(score_BHTS.softmax(-1), self.dropout, self.training)
        out_BHTK = weight_BHTS @ value_BSHK.transpose(1, 2)
        return self.output(out_BHTK.transpose(1, 2).flatten(2)), None, None

    def _mask(self, valid_BM: Tensor, q_BTHK: Tensor) -> Tensor:
        """0 where the query sees the key, -inf elsewhere; (B, 1, T, S)."""
        segment, memory = q_BTHK.shape[1], valid_BM.shape[1]
        query_T1 = torch.arange(memory, memory + segment, device=valid_BM.device)[:, None]
        key_S = torch.arange(memory + segment, device=valid_BM.device)
        hidden_TS = key_S > query_T1
        if self.window is not None:
            hidden_TS = hidden_TS | (key_S <= query_T1 - self.window)
        invalid_BS = F.pad(~valid_BM, (0, segment), value=False)
        hidden_BTS = hidden_TS | invalid_BS[:, None]
        mask_BTS = torch.zeros(hidden_BTS.shape, dtype=q_BTHK.dtype, device=q_BTHK.device)
        return mask_BTS.masked_fill_(hidden_BTS, -math.inf)[:, None]

    def flops(self, batch: int, segment: int, memory: int) -> float:
        """Projections of queries, keys, values, distances and output; three products per key.

        The keys and values of the memory are projected anew in each segment, the distances once
        for all streams.
        """
        keys = memory + segment
        matrix = 2.0 * self.query.weight.numel()
        projections = matrix * (4 + 2 * memory / segment + keys / (batch * segment))
        return projections + 6.0 * self.n_heads * self.d_head * keys


def sinusoid(distances: int, width: int, *, like: Tensor, clamp: int | None = None) -> Tensor:
    """Encodings of the distances S-1 ... 0, in this order: the sines and then the cosines.

    A distance above `clamp` has the encoding of `clamp`.

    The angles are computed in float32 or wider, whatever the model's dtype: in bfloat16
    neighbouring distances beyond 256 would be one.
    """
    dtype = torch.promote_types(like.dtype, torch.float32)
    distance_S = torch.arange(distances - 1, -1, -1, dtype=dtype, device=like.device)
    if clamp is not None:
        distance_S = distance_S.clamp(max=clamp)
    exponent = torch.arange((width + 1) // 2, dtype=dtype, device=like.device) * (2 / width)
    angle = distance_S[:, None] * 10000.0**-exponent
    return torch.cat([angle.sin(), angle.cos()], dim=-1)[:, :width].to(like.dtype)


def _position_scores(q_BTHK: Tensor, r_SHK: Tensor) -> Tensor:
    """q_i . r_{M+i-j} for every j <= M + i; what stands at a later j has no meaning.

    The product has the distances in its columns, S-1 first; row i is shifted left by T-1-i by
    padding a column and reading the same numbers with rows one shorter (Dai et al., appendix B).
    """
    batch, segment, heads, _ = q_BTHK.shape
    q_HNK = q_BTHK.permute(2, 0, 1, 3).flatten(1, 2)
    raw_HBTS = (q_HNK @ r_SHK.permute(1, 2, 0)).view(heads, batch, segment, -1)
    padded = F.pad(raw_HBTS.transpose(0, 1), (1, 0))
    keys = r_SHK.shape[0]
    rolled = padded.reshape(batch, heads, keys + 1, segment)[:, :, 1:]
    return rolled.reshape(batch, heads, segment, keys)
