"""The kinds of attention as graphs of any length: what `model/blocks` computes, in plain products.

Where an evaluation writes into buffers, cuts a segment into windows or sorts keys by cluster, a
graph joins, masks and counts: the same numbers, and more products for long segments.

B batch   T segment length   M memory length   S = M + T keys   D d_model   H heads   K head dim
G heads of keys and values   N = H / G   P persistent vectors   C clusters   R = M + 1
Z = S + 1
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.blocks.adaptive_span import AdaptiveSpanBlock
from model.blocks.all_attention import AllAttentionBlock
from model.blocks.attention import AttentionBlock, normed, turned, with_keys
from model.blocks.routing import ITSELF, RoutingBlock
from model.state import Segment, sinusoid, sinusoid_at, turns_at


class Form(nn.Module):
    """What a slot asks of the block that it computes."""

    adds_nothing = False
    memory_rows = 0


class AttentionForm(Form):
    """Attention over M rows of keys and values, zero and masked where there is no token.

    Relative encodings of the distances M ... 0, projected, are constants; those beyond are made in
    the graph, where a window does not hide them. One product more than there are distances stands
    in the first column: rows of the scores, read one number shorter, are shifted as they must be.
    """

    query_ED: Tensor
    near_RGK: Tensor
    u_GN1K: Tensor
    v_GN1K: Tensor

    def __init__(self, block: AttentionBlock, reach: int | None = None) -> None:
        super().__init__()
        self.heads, self.groups, self.width = block.n_heads, block.n_kv_heads, block.d_head
        self.window, self.memory = block.reached(reach)
        self.clamp, self.memory_rows = block.clamp, self.memory
        self.relative, self.rope = block.positions == "relative", block.positions == "rope"
        self.key_value, self.output = block.key_value, block.output
        query_ED, norm_K, *biases = block.scaled()
        self.register_buffer("query_ED", query_ED)
        self.query_norm_K = None if norm_K is None else nn.Parameter(norm_K)
        self.key_norm_K = block.key_norm_K
        for name, bias_HK in zip(("u_GN1K", "v_GN1K"), biases, strict=True):
            if bias_HK is not None:
                self.register_buffer(name, bias_HK.view(self.groups, -1, 1, self.width))
        if self.relative:
            self.register_buffer("near_RGK", self._near(block))

    def forward(
        self, c_BTD: Tensor, segment: Segment, state_BG2MK: Tensor | None
    ) -> tuple[Tensor, Tensor | None, None]:
        """What is added, and the keys and values of the last M tokens (None: M is 0)."""
        batch, length, _ = c_BTD.shape
        per_group = self.heads // self.groups
        rows = self.memory if self.clamp is not None else 0
        turns = segment.turns(rows, self.width, c_BTD.dtype) if self.rope else None
        q_BTE = F.linear(c_BTD, self.query_ED)
        q_BTHK = normed(q_BTE.view(batch, length, self.heads, self.width), self.query_norm_K)
        both_BTE = self.key_value(c_BTD)
        both_BT2GK = both_BTE.view(batch, length, 2, self.groups, self.width)
        both_BT2GK = with_keys(both_BT2GK, self.key_norm_K, turns)
        whole_BG2SK = both_BT2GK.permute(0, 3, 2, 1, 4)
        if self.memory:
            if state_BG2MK is None:
                shape = (batch, self.groups, 2, self.memory, self.width)
                state_BG2MK = whole_BG2SK.new_zeros(shape)
            whole_BG2SK = torch.cat([state_BG2MK, whole_BG2SK], dim=3)
            state_BG2MK = whole_BG2SK[:, :, :, length:]
        k_BG1SK, value_BG1SK = (part_BGSK[:, :, None] for part_BGSK in whole_BG2SK.unbind(2))

        def grouped(q_BTHK: Tensor) -> Tensor:
            q_BTGNK = q_BTHK.view(batch, length, self.groups, per_group, self.width)
            return q_BTGNK.permute(0, 2, 3, 1, 4)

        content_BGNTK = grouped(q_BTHK)
        if self.relative:
            position_BGNTS = self._position_scores(content_BGNTK + self.v_GN1K)
            content_BGNTK = content_BGNTK + self.u_GN1K
            score_BGNTS = content_BGNTK @ k_BG1SK.mT + position_BGNTS
        else:
            score_BGNTS = grouped(turned(q_BTHK, turns)) @ k_BG1SK.mT
        if turns is not None and self.clamp is not None:
            clamp = torch.full((1, 1), self.clamp, device=c_BTD.device)
            far_BTHK = turned(q_BTHK, turns_at(clamp, self.width, c_BTD.dtype))
            k_BSGK = turned(whole_BG2SK[:, :, 0].transpose(1, 2), (turns[0], -turns[1]))
            far_BGNTS = grouped(far_BTHK) @ k_BSGK.permute(0, 2, 3, 1)[:, :, None]
            score_BGNTS = score_BGNTS + (far_BGNTS - score_BGNTS).tril(rows - self.clamp - 1)
        score_BGNTS = self._masked(score_BGNTS, segment)
        out_BGNTK = self._read(score_BGNTS, content_BGNTK, value_BG1SK)
        out_BTE = out_BGNTK.permute(0, 3, 1, 2, 4).flatten(2)
        return self.output(out_BTE), state_BG2MK if self.memory else None, None

    def _near(self, block: AttentionBlock) -> Tensor:
        """Of the distances M ... 0."""
        self.position = block.position
        width, dtype = self.position.weight.shape[1], self.position.weight.dtype
        near_RD = sinusoid(self.memory + 1, width, dtype=dtype, clamp=self.clamp)
        return self._by_group(self.position(near_RD))

    def _masked(self, score_BGNTS: Tensor, segment: Segment) -> Tensor:
        mask_BTS = segment.mask(self.memory, self.window, score_BGNTS.dtype)
        return score_BGNTS + mask_BTS[:, None, None]

    def _read(self, score_BGNTS: Tensor, content_BGNTK: Tensor, value_BG1SK: Tensor) -> Tensor:
        return torch.softmax(score_BGNTS, dim=-1) @ value_BG1SK

    def _position_scores(self, q_BGNTK: Tensor) -> Tensor:
        batch, groups, per_group, length, _ = q_BGNTK.shape
        r_GKZ = torch.cat([self._far(length), self.near_RGK]).permute(1, 2, 0)
        raw_BGNTZ = q_BGNTK @ r_GKZ[:, None]
        keys = self.memory + length
        rows = raw_BGNTZ.flatten(3)[..., length:]
        return rows.view(batch, groups, per_group, length, keys)

    def _far(self, length: int) -> Tensor:
        """Of the distances M + T ... M + 1; zeros where no query sees so far."""
        if self.window is not None and self.window <= self.memory + 1:
            return self.near_RGK.new_zeros(length, self.groups, self.width)
        distance_T = torch.arange(length, device=self.near_RGK.device).flip(0) + self.memory + 1
        distance_T = distance_T.to(self.near_RGK.dtype)
        if self.clamp is not None:
            distance_T = distance_T.clamp(max=self.clamp)
        far_TD = sinusoid_at(distance_T, self.position.weight.shape[1])
        return self._by_group(self.position(far_TD))

    def _by_group(self, rows_RE: Tensor) -> Tensor:
        return rows_RE.view(-1, self.groups, self.width)


class AdaptiveSpanForm(AttentionForm):
    """Attention that fades out behind the span of each head, over the keys that some head sees."""

    span_GN11: Tensor

    def __init__(self, block: AdaptiveSpanBlock) -> None:
        self.first = block.first
        super().__init__(block.attention, block.reach() + block.first)
        self.ramp, self.longest = block.ramp, block.span
        span_H = block.span_H.clamp(0.0, 1.0) * block.span
        self.register_buffer("span_GN11", span_H.view(self.groups, -1, 1, 1))

    def _near(self, block: AttentionBlock) -> Tensor:
        table_LK = getattr(block, "distance_LK", None)
        if table_LK is None:
            return super()._near(block)
        # No query sees further than the memory, so nothing is asked of the distances behind it.
        place_R = torch.arange(self.memory, -1, -1) - self.first
        near_RK = table_LK[place_R.clamp(0, len(table_LK) - 1)]
        return near_RK[:, None].expand(-1, self.groups, -1).contiguous()

    def _masked(self, score_BGNTS: Tensor, segment: Segment) -> Tensor:
        # A query that does not see itself sees the zeros before a stream.
        return score_BGNTS if self.first else super()._masked(score_BGNTS, segment)

    def _read(self, score_BGNTS: Tensor, content_BGNTK: Tensor, value_BG1SK: Tensor) -> Tensor:
        keys = score_BGNTS.shape[4]
        query_T1 = torch.arange(self.memory, keys, device=score_BGNTS.device)[:, None]
        x_TS = query_T1 - torch.arange(keys, device=score_BGNTS.device) - self.first
        left_GNTS = self.ramp + self.span_GN11 - x_TS
        fading_GNTS = (left_GNTS / self.ramp).clamp(0.0, 1.0)
        if self.first:
            fading_GNTS = fading_GNTS.masked_fill((x_TS < 0) | (x_TS >= self.longest), 0.0)
        score_BGNTS = score_BGNTS.masked_fill(fading_GNTS == 0.0, -math.inf)
        weight_BGNTS = torch.softmax(score_BGNTS, dim=-1) * fading_GNTS
        return weight_BGNTS / weight_BGNTS.sum(dim=-1, keepdim=True) @ value_BG1SK


class AllAttentionForm(AttentionForm):
    """Attention with persistent keys and values in the same softmax."""

    key_GNKP: Tensor
    value_GNPK: Tensor

    def __init__(self, block: AllAttentionBlock) -> None:
        super().__init__(block.attention)
        key_PHK, value_PHK = block.vectors()
        shape = (self.groups, -1, self.width, key_PHK.shape[0])
        self.register_buffer("key_GNKP", key_PHK.permute(1, 2, 0).reshape(shape))
        shape = (self.groups, -1, key_PHK.shape[0], self.width)
        self.register_buffer("value_GNPK", value_PHK.transpose(0, 1).reshape(shape))

    def _read(self, score_BGNTS: Tensor, content_BGNTK: Tensor, value_BG1SK: Tensor) -> Tensor:
        keys = score_BGNTS.shape[4]
        both = torch.cat([score_BGNTS, content_BGNTK @ self.key_GNKP], dim=-1)
        weight = torch.softmax(both, dim=-1)
        return weight[..., :keys] @ value_BG1SK + weight[..., keys:] @ self.value_GNPK


class RoutingForm(Form):
    """Attention within clusters as one masked softmax over all keys.

    A token's rank is the number of tokens of its cluster up to it: a query sees the keys of its
    cluster whose ranks are less than W below its own.
    """

    def __init__(self, block: RoutingBlock) -> None:
        super().__init__()
        self.block, self.memory, self.keys = block, block.memory_rows, block.options.keys
        self.memory_rows = self.memory
        self.heads, self.width = block.n_heads, block.d_head
        self.local = None if block.local is None else AttentionForm(block.local)

    def forward(
        self, c_BTD: Tensor, segment: Segment, state: Tensor | None
    ) -> tuple[Tensor, Tensor | None, None]:
        """The state is the block's: queries and values of the memory, then that of local heads."""
        both_BSE = F.linear(c_BTD, self.block.query_value.weight)
        routed, local_state = self.block.split(state, both_BSE, both_BSE.dtype)
        both_BSE = torch.cat([routed, both_BSE], dim=1)
        next_states = [both_BSE[:, segment.length :].flatten(1)]
        both_BS2HK = both_BSE.view(-1, both_BSE.shape[1], 2, self.heads, self.width)
        q_BHSK, value_BHSK = both_BS2HK.permute(2, 0, 3, 1, 4)
        weight_BHTS = self._weights(q_BHSK, segment)
        out_BTE = (weight_BHTS @ value_BHSK).transpose(1, 2).flatten(2)
        delta_BTD = F.linear(out_BTE, self.block.output.weight)
        if self.local is not None:
            local_BTD, local_state, _ = self.local(c_BTD, segment, local_state)
            delta_BTD = delta_BTD + local_BTD
            next_states += [] if local_state is None else [local_state.flatten(1)]
        return delta_BTD, torch.cat(next_states, dim=1), None

    def _weights(self, q_BHSK: Tensor, segment: Segment) -> Tensor:
        k_BHSK = F.normalize(q_BHSK, dim=-1, eps=1e-6)
        sees_BHTS, itself_TS = self._sees(k_BHSK, segment)
        q_BHTK = q_BHSK[:, :, self.memory :] * self.width**-0.5
        score_BHTS = (q_BHTK @ k_BHSK.mT).masked_fill(~sees_BHTS, -math.inf)
        return torch.softmax(score_BHTS.masked_fill(itself_TS, ITSELF), dim=-1)

    def _sees(self, k_BHSK: Tensor, segment: Segment) -> tuple[Tensor, Tensor]:
        """Whether a query sees a key, and whether that is the query's own."""
        mu_HKC = self.block.mu_HCK.mT
        cluster_BHS = (k_BHSK @ mu_HKC).argmax(dim=-1)
        number_C = torch.arange(mu_HKC.shape[2], device=k_BHSK.device)
        is_of_BHSC = cluster_BHS[..., None] == number_C
        count_BHSC = is_of_BHSC.to(torch.int64).cumsum(dim=2)
        rank_BHS = count_BHSC.gather(3, cluster_BHS[..., None])[..., 0]
        back_BHTS = rank_BHS[:, :, self.memory :, None] - rank_BHS[:, :, None]
        alike_BHTS = cluster_BHS[:, :, self.memory :, None] == cluster_BHS[:, :, None]
        place_S = torch.arange(k_BHSK.shape[2], device=k_BHSK.device)
        holds_BS = place_S >= (self.memory - segment.seen_B)[:, None]
        # A later key of the same cluster has a higher rank, one that holds no token an early place.
        within_BHTS = (back_BHTS >= 0) & (back_BHTS < self.keys) & holds_BS[:, None, None]
        return alike_BHTS & within_BHTS, place_S == place_S[self.memory :, None]
