"""Relative multi-head attention (Dai et al. 2019, section 3.3).

B batch   T segment length   M memory length   S = M + T keys   D d_model   H heads   K head dim
G heads of keys and values   W window   N blocks of W queries   C = 2 W - 1 keys of a block
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.attention_kernels import (
    AttentionInputs,
    Kernel,
    append_to_kv_cache,
    attend_cached,
    select_kernel,
)
from model.blocks.base import linear
from model.blocks.options import ContextOptions
from model.ops import Dropout, project
from model.state import Segment


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

        `kernel` attends in the place of the device's fastest way, `reach` is a smaller window for
        this call, and all queries of an evaluation see `persistent_2NHK` beside the cached ones.
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


@dataclass(frozen=True)
class Cut:
    """A segment longer than the window in N blocks of W queries, with the C keys that each sees.

    They stand in the place of streams, so few products meet keys that nobody sees. The last block
    may end with padding, which no other query sees. `segment` is what the queries of one block are;
    with one block nothing is cut, and without a window all keys are seen.
    """

    segment: Segment
    blocks: int
    length: int
    window: int | None
    memory: int

    def queries(self, rows_BTX: Tensor) -> Tensor:
        """From (B, T, ...) to (B N, W, ...)."""
        if self.blocks == 1:
            return rows_BTX
        padded = _padded(rows_BTX, 1, self.blocks * self.segment.length)
        return padded.reshape(-1, self.segment.length, *rows_BTX.shape[2:])

    def keys(self, rows: Tensor, *, axis: int) -> Tensor:
        """From (B, ..., S, ...) to (B N, ..., C, ...), where `axis` has the S rows."""
        if self.blocks == 1:
            return rows
        window = self.segment.length
        padded = _padded(rows, axis, self.memory + self.blocks * window)
        blocks = padded.unfold(axis, self.memory + window, window)
        return blocks.movedim(-1, axis).movedim(axis + 1, 1).flatten(0, 1)

    def joined(self, rows: Tensor) -> Tensor:
        """The inverse of `queries`: (B, T, ...), without padding."""
        if self.blocks == 1:
            return rows
        parts = rows.reshape(-1, self.blocks * self.segment.length, *rows.shape[2:])
        return parts[:, : self.length]

    def mask(self, dtype: torch.dtype) -> Tensor:
        """0 where a query sees a key, -inf elsewhere; (B N, W, C), or (1, W, C) if all are alike.

        Only the first block reads the memory, whose rows may hold nothing yet.
        """
        first_BWC = self.segment.mask(self.memory, self.window, dtype)
        if self.blocks == 1 or self.segment.full or not self.memory:
            return first_BWC
        later = Segment(self.segment.seen_B, self.segment.length, full=True)
        mask_BNWC = later.mask(self.memory, self.window, dtype).repeat(
            len(first_BWC), self.blocks, 1, 1
        )
        mask_BNWC[:, 0] = first_BWC
        return mask_BNWC.flatten(0, 1)


def cut_of(segment: Segment, window: int | None, memory: int) -> Cut:
    """How the queries of a segment are cut, where the memory holds all that the first one sees."""
    blocks = _blocks(window, memory, segment.length)
    if blocks == 1:
        return Cut(segment, 1, segment.length, window, memory)
    assert window is not None

    def made() -> Segment:
        return Segment(segment.seen_B, window, segment.cache, segment.full, segment.kernel)

    return Cut(segment.once(("cut", window), made), blocks, segment.length, window, memory)


def pairs_of(window: int | None, memory: int, length: int) -> tuple[int, int]:
    """How many queries are computed, padding included, and with how many keys each."""
    if (blocks := _blocks(window, memory, length)) == 1:
        return length, memory + length
    assert window is not None
    return blocks * window, memory + window


def _blocks(window: int | None, memory: int, length: int) -> int:
    if window is None or memory != window - 1 or length <= window:
        return 1
    blocks = -(-length // window)
    return blocks if blocks * window * (memory + window) < length * (memory + length) else 1


def _padded(rows: Tensor, axis: int, length: int) -> Tensor:
    """Zeros behind the rows of an axis."""
    behind = rows.dim() - 1 - axis
    return F.pad(rows, (0, 0) * behind + (0, length - rows.shape[axis]))
