"""Relative multi-head attention (Dai et al. 2019, section 3.3).

B batch   T segment length   M memory length   S = M + T keys   D d_model   H heads   K head dim
G heads of keys and values
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from model.attention_kernels import AttentionInputs, Kernel, select_kernel
from model.attention_windows import cut_of, pairs_of
from model.blocks.base import LEFT_OUT, HeadOptions, Label, linear
from model.kv_cache import append_to_kv_cache, attend_cached
from model.ops import Dropout, project
from model.state import Segment


class ContextOptions(HeadOptions):
    """Options of a candidate that reads keys of a memory and the segment."""

    adjustable: ClassVar[frozenset[str]] = frozenset({"memory", "window", "clamp"})
    reach: ClassVar[str | None] = "window"

    n_kv_heads: int | None = Field(
        default=None,
        ge=1,
        le=4096,
        description="Heads of keys and values, each for so many heads of queries; null: n_heads.",
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
        n_heads, groups = values["n_heads"], values["n_kv_heads"]
        if groups is not None and n_heads % groups:
            raise ValueError(
                f"n_kv_heads: {groups} does not divide n_heads {n_heads}; give a divisor"
            )
        return HeadOptions._derived(values, d_model)


class AttentionOptions(ContextOptions):
    """Options of an attention candidate."""

    added: ClassVar[Mapping[str, Any]] = {"clamp": None, "n_kv_heads": None}

    kind: Literal["attention"] = "attention"
    label: Label = "attention"


class AttentionBlock(nn.Module):
    """Attention over the memory and the segment up to the query.

    score_ij = ((q_i + u) . k_j + (q_i + v) . W_r R_{M+i-j}) / sqrt(d_head), for keys j <= M + i
    that lie inside the window and, in the memory, are valid. u and v belong to the slot. With a
    clamp N, the encoding of a distance above N is R_N (Transformer-XL's clamp_len), so that an
    evaluation with more memory meets no distance that training did not. With fewer heads of keys
    and values each serves H / G neighbouring heads of queries (grouped queries, Ainslie et al.
    2023, arXiv 2305.13245; with one of them multi-query attention, Shazeer 2019, 1911.02150), and
    so do the projected encodings r.

    Differs from the paper: u and v are not shared by all slots, and a window can be given.
    """

    adds_nothing = False
    head_biases = ("u_HK", "v_HK")

    def __init__(self, options: ContextOptions, d_model: int, dropout: Dropout) -> None:
        super().__init__()
        assert not options.missing, options.missing
        self.n_heads, self.d_head = options.n_heads, options.d_head
        self.n_kv_heads = options.n_kv_heads or options.n_heads
        self.window, self.clamp = options.window, options.clamp
        self.dropout = dropout.attention
        width, kv_width = self.n_heads * self.d_head, self.n_kv_heads * self.d_head
        self.query = linear(d_model, width, bias=False)
        self.key_value = linear(d_model, 2 * kv_width, bias=False)
        self.position = linear(d_model, kv_width, bias=False)
        self.output = linear(width, d_model, bias=False)
        self.u_HK = nn.Parameter(torch.zeros(self.n_heads, self.d_head))
        self.v_HK = nn.Parameter(torch.zeros(self.n_heads, self.d_head))
        within = options.memory if self.window is None else self.window - 1
        self.memory_rows = min(options.memory, within)

    def forward(
        self,
        c_BSD: Tensor,
        segment: Segment,
        state: Tensor | None,
        kernel: Kernel | None = None,
        reach: int | None = None,
        persistent_2NHK: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None, None]:
        """In an evaluation the state holds the keys and values of the memory, (B, G, 2, M, K).

        `kernel` attends in the place of the device's fastest way. `reach` is a smaller window for
        this call: the rows of memory that then nobody sees are not read. `persistent_2NHK` are
        keys and values that all queries of an evaluation see beside the cached ones.
        """
        window, memory = self.reached(reach)
        if not segment.cached:
            c_BSD = c_BSD[:, self.memory_rows - memory :]
        x_BTD = c_BSD if segment.cached else c_BSD[:, memory:]
        scale = self.d_head**-0.5
        q_BTE = project(x_BTD, self.query.weight * scale)
        q_BTHK = q_BTE.view(*q_BTE.shape[:2], self.n_heads, self.d_head)
        both_BSE = project(c_BSD, self.key_value.weight)
        both_BS2GK = both_BSE.view(*both_BSE.shape[:2], 2, self.n_kv_heads, self.d_head)
        u_HK, v_HK = self.u_HK * scale, self.v_HK * scale
        cut = cut_of(segment, window, memory)
        q_BTHK, mask_BTS = cut.queries(q_BTHK), cut.mask(q_BTE.dtype)
        if segment.cached:
            new_BG2TK = both_BS2GK.permute(0, 3, 2, 1, 4)
            if state is None:
                state = new_BG2TK.new_zeros(*new_BG2TK.shape[:3], memory, self.d_head)
            whole_BG2SK = append_to_kv_cache(state, new_BG2TK)
            state = whole_BG2SK[:, :, :, segment.length :]
            r_SGK = segment.once_per_evaluation(
                (self, segment.length), lambda: self._distances(cut.segment, memory, q_BTE)
            )
            seen_BG2SK = cut.keys(whole_BG2SK, axis=3)
            both_BS2GK = seen_BG2SK.permute(0, 3, 2, 1, 4)
        else:
            r_SGK = self._distances(cut.segment, memory, q_BTE)
            both_BS2GK = cut.keys(both_BS2GK, axis=1)
        if segment.cached and kernel is None:
            rows = (q_BTHK, seen_BG2SK, r_SGK, u_HK, v_HK, mask_BTS)
            out_BTHK = attend_cached(*rows, persistent_2NHK)
        else:
            rate = self.dropout if self.training else 0.0
            read = (*both_BS2GK.unbind(2), r_SGK)
            k_BSHK, value_BSHK, r_SHK = map(self._for_all_heads, read)
            inputs = AttentionInputs(q_BTHK, k_BSHK, value_BSHK, r_SHK, u_HK, v_HK, mask_BTS)
            kernel = kernel or select_kernel(q_BTHK.device, rate, segment.kernel)
            out_BTHK = kernel(inputs, rate)
        out_BTE = cut.joined(out_BTHK).flatten(2)
        return project(out_BTE, self.output.weight), state, None

    def _for_all_heads(self, of_groups: Tensor) -> Tensor:
        """What heads of queries read, from (..., G, K) to (..., H, K)."""
        if self.n_kv_heads == self.n_heads:
            return of_groups
        return of_groups.repeat_interleave(self.n_heads // self.n_kv_heads, dim=-2)

    def _distances(self, segment: Segment, memory: int, like: Tensor) -> Tensor:
        """The projected encodings of the distances S-1 ... 0; (S, G, K)."""
        width = self.position.weight.shape[1]
        r_SD = segment.encodings(memory, width, self.clamp, like.dtype)
        r_SE = self.position(r_SD)
        return r_SE.view(-1, self.n_kv_heads, self.d_head)

    def reached(self, reach: int | None) -> tuple[int | None, int]:
        """The window, and the rows of memory within it; `reach` is a smaller window."""
        if reach is None:
            return self.window, self.memory_rows
        window = reach if self.window is None else min(reach, self.window)
        return window, min(self.memory_rows, window - 1)

    def computed(self, segment: int, reach: int | None = None) -> tuple[int, int]:
        """How many queries of a segment are computed, and with how many keys each."""
        window, memory = self.reached(reach)
        return pairs_of(window, memory, segment)

    def flops(self, batch: int, segment: int, memory: int, reach: int | None = None) -> float:
        """Projections of queries, keys, values, distances and output; three products per key.

        The keys and values of the memory are projected anew in each segment, the distances once
        for all streams.
        """
        rows = min(memory, self.reached(reach)[1]) + segment
        queries, both = 2.0 * self.query.weight.numel(), 2.0 * self.key_value.weight.numel()
        read, keys = self.computed(segment, reach)
        projections = 2 * queries + both * rows / segment
        products = 6.0 * self.n_heads * self.d_head * read * keys / segment
        return projections + products + self._flops_of_a_distance() * keys / (batch * segment)

    def _flops_of_a_distance(self) -> float:
        return 2.0 * self.position.weight.numel()
