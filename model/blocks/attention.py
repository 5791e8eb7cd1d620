"""Multi-head attention over a memory and a segment.

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
from model.blocks.base import NORM_EPS, linear
from model.blocks.options import ContextOptions
from model.ops import Dropout, project
from model.state import Segment, Turns, turns_at


class AttentionBlock(nn.Module):
    """Attention over the memory and the segment up to the query.

    Keys are those at j <= M + i that lie inside the window and, in the memory, are valid.

    - `positions` relative (Dai et al. 2019, section 3.3): score_ij = ((q_i + u) . k_j + (q_i + v) .
      W_r R_{M+i-j}) / sqrt(K).
    - rope (Su et al. 2021, arXiv 2104.09864, Eq. 34): score_ij = (T_i q_i) . (T_j k_j) / sqrt(K),
      where T_p turns the channels i and i + K / 2 by the angle p 10000^(-2 i / K).
    - none: score_ij = q_i . k_j / sqrt(K).

    A distance above a clamp N counts as N (Transformer-XL's clamp_len), so that an evaluation with
    more memory meets no distance that training did not. With `qk_norm` q and k are normed before
    that, each head's with the same weights (Henry et al. 2020, arXiv 2010.04245). With fewer heads
    of keys and values each serves H / G neighbouring heads of queries (grouped queries, Ainslie et
    al. 2023, arXiv 2305.13245; with one of them multi-query attention, Shazeer 2019, 1911.02150),
    and so do the projected encodings r.

    Differs from the papers: each slot has its u and v, a window can be given, the norm is RMSNorm.
    """

    adds_nothing = False

    def __init__(self, options: ContextOptions, d_model: int, dropout: Dropout) -> None:
        super().__init__()
        self.n_heads, self.d_head = options.n_heads, options.d_head
        self.n_kv_heads = options.n_kv_heads or options.n_heads
        self.window, self.clamp = options.window, options.clamp
        self.positions, relative = options.positions, options.positions == "relative"
        self.head_biases = ("u_HK", "v_HK") if relative else ()
        self.dropout = dropout.attention
        width, kv_width = self.n_heads * self.d_head, self.n_kv_heads * self.d_head
        self.query = linear(d_model, width, bias=False)
        self.key_value = linear(d_model, 2 * kv_width, bias=False)
        if relative:
            self.position = linear(d_model, kv_width, bias=False)
        self.output = linear(width, d_model, bias=False)
        self.u_HK = nn.Parameter(torch.zeros(self.n_heads, self.d_head)) if relative else None
        self.v_HK = nn.Parameter(torch.zeros(self.n_heads, self.d_head)) if relative else None
        self.query_norm_K = nn.Parameter(torch.ones(self.d_head)) if options.qk_norm else None
        self.key_norm_K = nn.Parameter(torch.ones(self.d_head)) if options.qk_norm else None
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
        cut, relative = cut_of(segment, window, memory), self.positions == "relative"
        # New keys are turned, and with a clamp those of a cache too, back.
        rows = 0 if segment.cached and self.clamp is None else memory
        turns = segment.turns(rows, self.d_head, x_BTD.dtype) if self.positions == "rope" else None
        query_ED, norm_K, u_HK, v_HK = self.scaled()
        q_BTE = project(x_BTD, query_ED)
        q_BTHK = normed(q_BTE.view(*q_BTE.shape[:2], self.n_heads, self.d_head), norm_K)
        plain_BTHK = None if turns is None else cut.queries(q_BTHK)
        q_BTHK = cut.queries(turned(q_BTHK, turns))
        both_BSE = project(c_BSD, self.key_value.weight)
        both_BS2GK = both_BSE.view(*both_BSE.shape[:2], 2, self.n_kv_heads, self.d_head)
        both_BS2GK = with_keys(both_BS2GK, self.key_norm_K, turns)
        added_BHTS = cut.mask(q_BTE.dtype)[:, None]
        if segment.cached:
            new_BG2TK = both_BS2GK.permute(0, 3, 2, 1, 4)
            if state is None:
                state = new_BG2TK.new_zeros(*new_BG2TK.shape[:3], memory, self.d_head)
            whole_BG2SK = append_to_kv_cache(state, new_BG2TK)
            state = whole_BG2SK[:, :, :, segment.length :]
            seen_BG2SK = cut.keys(whole_BG2SK, axis=3)
            k_BSGK = whole_BG2SK[:, :, 0].transpose(1, 2)
            both_BS2GK = seen_BG2SK.permute(0, 3, 2, 1, 4)
        else:
            k_BSGK = both_BS2GK[:, :, 0]
            both_BS2GK = cut.keys(both_BS2GK, axis=1)
        if plain_BTHK is not None and turns is not None and self._clamps(both_BS2GK.shape[1]):
            added_BHTS = added_BHTS + self._beyond_clamp(plain_BTHK, q_BTHK, k_BSGK, turns, cut)
        r_SGK = None
        if relative:
            r_SGK = segment.once_per_evaluation(
                (self, segment.length), lambda: self._distances(cut.segment, memory, q_BTE)
            )
        others = (u_HK, v_HK, added_BHTS, plain_BTHK)
        if segment.cached and kernel is None:
            out_BTHK = attend_cached(q_BTHK, seen_BG2SK, r_SGK, *others, persistent_2NHK)
        else:
            rate = self.dropout if self.training else 0.0
            k_BSHK, value_BSHK = map(self._for_all_heads, both_BS2GK.unbind(2))
            r_SHK = None if r_SGK is None else self._for_all_heads(r_SGK)
            kernel = kernel or select_kernel(q_BTHK.device, rate, segment.kernel, relative)
            out_BTHK = kernel(AttentionInputs(q_BTHK, k_BSHK, value_BSHK, r_SHK, *others), rate)
        out_BTE = cut.joined(out_BTHK).flatten(2)
        return project(out_BTE, self.output.weight), state, None

    def scaled(self) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
        """Weights of the queries and of their norm, u and v, with 1/sqrt(K) in all that need it."""
        scale = self.d_head**-0.5
        u_HK, v_HK = (None if b_HK is None else b_HK * scale for b_HK in (self.u_HK, self.v_HK))
        if self.query_norm_K is None:
            return self.query.weight * scale, None, u_HK, v_HK
        return self.query.weight, self.query_norm_K * scale, u_HK, v_HK

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

    def _clamps(self, keys: int) -> bool:
        """Whether a clamp changes the scores of turned keys."""
        return self.positions == "rope" and self.clamp is not None and self.clamp < keys - 1

    def _beyond_clamp(
        self, plain_BTHK: Tensor, q_BTHK: Tensor, k_BSGK: Tensor, turns: Turns, cut: "Cut"
    ) -> Tensor:
        """(T_N q_i) . k_j - (T_i q_i) . (T_j k_j) beyond N keys, else 0, of whole T_j k_j."""
        assert self.clamp is not None
        both = (k_BSGK, turned(k_BSGK, (turns[0], -turns[1])))
        seen = (self._for_all_heads(cut.keys(rows_BSGK, axis=1)) for rows_BSGK in both)
        k_BHKS, raw_BHKS = (rows_BSHK.permute(0, 2, 3, 1) for rows_BSHK in seen)
        clamp = torch.full((1, 1), self.clamp, device=k_BSGK.device)
        far_BTHK = turned(plain_BTHK, turns_at(clamp, self.d_head, turns[0].dtype))
        far_BHTS = far_BTHK.transpose(1, 2) @ raw_BHKS - q_BTHK.transpose(1, 2) @ k_BHKS
        return far_BHTS.tril(far_BHTS.shape[3] - far_BHTS.shape[2] - self.clamp - 1)

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
        """Projections of queries, keys, values, distances and output; two products per key.

        Relative positions have a third one, a clamp of turned keys has two more.
        The keys and values of the memory are projected anew in each segment, the distances once
        for all streams.
        """
        rows = min(memory, self.reached(reach)[1]) + segment
        queries, both = 2.0 * self.query.weight.numel(), 2.0 * self.key_value.weight.numel()
        read, keys = self.computed(segment, reach)
        projections = 2 * queries + both * rows / segment
        count = 2 + (self.positions == "relative") + 2 * self._clamps(keys)
        products = 2.0 * count * self.n_heads * self.d_head * read * keys / segment
        return projections + products + self._flops_of_a_distance() * keys / (batch * segment)

    def _flops_of_a_distance(self) -> float:
        return 2.0 * self.position.weight.numel() if self.positions == "relative" else 0.0


def normed(rows: Tensor, weight_K: Tensor | None) -> Tensor:
    """RMSNorm of each head's rows, in float32 at least; without weights the rows."""
    if weight_K is None:
        return rows
    wide = torch.promote_types(rows.dtype, torch.float32)
    return F.rms_norm(rows.to(wide), weight_K.shape, weight_K.to(wide), NORM_EPS).to(rows.dtype)


def turned(rows_BSHK: Tensor, turns: Turns | None) -> Tensor:
    """Each pair of channels i and i + K / 2 turned by the angles of the last S positions."""
    if turns is None:
        return rows_BSHK
    cos, sin = (part[:, -rows_BSHK.shape[1] :] for part in turns)
    one, other = rows_BSHK.to(cos.dtype).chunk(2, dim=-1)
    return torch.cat([one * cos - other * sin, other * cos + one * sin], -1).to(rows_BSHK.dtype)


def with_keys(both_BS2GK: Tensor, norm_K: Tensor | None, turns: Turns | None) -> Tensor:
    """Keys and values, the keys normed and then turned."""
    if norm_K is None and turns is None:
        return both_BS2GK
    k_BSGK, value_BSGK = both_BS2GK.unbind(2)
    return torch.stack([turned(normed(k_BSGK, norm_K), turns), value_BSGK], dim=2)


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
