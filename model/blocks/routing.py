"""Routed attention: heads that read the keys of the query's own cluster (Roy et al. 2020).

"Efficient Content-Based Sparse Attention with Routing Transformers", arXiv 2003.05997.

B batch   T segment length   M memory length   S = M + T keys   D d_model   H routing heads
K head dim   C clusters   W keys that a query reads   R tokens of all streams
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.blocks.attention import AttentionBlock
from model.blocks.base import AddUp, Numbers, linear
from model.blocks.options import AttentionOptions, RoutingOptions
from model.ops import Dropout, computed_dtype, drop, project, without_autocast
from model.state import Segment

# The score of a query with itself: it counts only where there is nothing else.
ITSELF = -5e4


class RoutingBlock(nn.Module):
    """Attention of a query to the latest W keys of its own cluster, beside local heads.

    By head, q = W_q x, k = q / |q|, a token's cluster is that of the largest k . mu_c, and the
    weights are softmax(q . k_j / sqrt(K)) over the keys before the query, or its own where there
    is none. Centres mu follow the mean of the keys that choose them, in training alone;
    `commitment_loss` draws keys to them.

    Differs from the paper: there each cluster takes its best tokens of the whole sequence, later
    ones included, so what a token reads depends on its future. Here tokens choose their cluster and
    a query reads the latest of it. Local heads have `positions` and `qk_norm`, routing heads
    neither.
    """

    adds_nothing = False
    mu_HCK: Tensor
    sum_HCK: Tensor
    count_HC: Tensor
    last_count_HC: Tensor

    def __init__(self, options: RoutingOptions, d_model: int, dropout: Dropout) -> None:
        super().__init__()
        assert options.n_local_heads is not None
        self.options, self.memory_rows = options, options.memory
        self.dropout = dropout.attention
        self.n_heads, self.d_head = options.n_heads - options.n_local_heads, options.d_head
        width = self.n_heads * self.d_head
        self.query_value = linear(d_model, 2 * width, bias=False)
        self.output = linear(width, d_model, bias=False)
        shape_HCK = (self.n_heads, options.clusters, self.d_head)
        self.register_buffer("mu_HCK", F.normalize(torch.randn(shape_HCK), dim=-1))
        self.register_buffer("sum_HCK", torch.zeros(shape_HCK), persistent=False)
        for name in ("count_HC", "last_count_HC"):
            self.register_buffer(name, torch.zeros(shape_HCK[:2]), persistent=False)
        self.local = self._local(options, d_model, dropout)

    @staticmethod
    def _local(options: RoutingOptions, d_model: int, dropout: Dropout) -> AttentionBlock | None:
        if not options.n_local_heads:
            return None
        local = AttentionOptions(
            n_heads=options.n_local_heads, d_head=options.d_head, n_kv_heads=None,
            positions=options.positions, qk_norm=options.qk_norm,
            window=options.keys, memory=min(options.memory, options.keys - 1), clamp=None,
        )  # fmt: skip
        return AttentionBlock(local, d_model, dropout)

    def forward(
        self, c_BSD: Tensor, segment: Segment, state: Tensor | None
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """In an evaluation the state holds queries and values of the memory, and local heads'."""
        dtype = computed_dtype(c_BSD)
        both_BSE = self._queries_and_values(c_BSD)
        routed, local = self.split(state, both_BSE, dtype) if segment.cached else (None, None)
        if routed is not None:
            both_BSE = torch.cat([routed, both_BSE], dim=1)
            routed = both_BSE[:, both_BSE.shape[1] - self.memory_rows :]
        both_BS2HK = both_BSE.view(*both_BSE.shape[:2], 2, self.n_heads, self.d_head)
        q_BHSK, value_BHSK = both_BS2HK.permute(2, 0, 3, 1, 4)
        k_BHSK = F.normalize(q_BHSK, dim=-1, eps=1e-6)
        cluster_BHS = self._clusters(k_BHSK)
        read_BHTW, sees_BHTW = self._latest(cluster_BHS, segment)
        out_BHTK = self._attend(
            q_BHSK.to(dtype), k_BHSK.to(dtype), value_BHSK.to(dtype), read_BHTW, sees_BHTW
        )
        delta_BTD = project(out_BHTK.transpose(1, 2).flatten(2), self.output.weight)
        aux = self._learn(k_BHSK[:, :, self.memory_rows :], cluster_BHS[:, :, self.memory_rows :])
        if self.local is not None:
            first = self.memory_rows - self.local.memory_rows
            seen_BSD = c_BSD if segment.cached else c_BSD[:, first:]
            local_BTD, local, _ = self.local(seen_BSD, segment, local)
            delta_BTD = delta_BTD + local_BTD
        if routed is None:
            return delta_BTD, None, aux
        parts = [routed.flatten(1)] + ([] if local is None else [local.flatten(1)])
        return delta_BTD, torch.cat(parts, dim=1), aux

    def _queries_and_values(self, c_BSD: Tensor) -> Tensor:
        """In float32 at least: in bfloat16 a query between two centres may choose the other one."""
        wide = torch.promote_types(c_BSD.dtype, torch.float32)
        with without_autocast(c_BSD.device):
            return project(c_BSD.to(wide), self.query_value.weight.to(wide))

    def split(
        self, state: Tensor | None, like_BTE: Tensor, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor | None]:
        """What an evaluation kept: of routing heads (B, M, 2 H K), of local ones attention's."""
        batch, _, width = like_BTE.shape
        local = self.local
        rows = local.memory_rows if local is not None else 0
        heads = local.n_heads if local is not None else 0
        sizes = [self.memory_rows * width, 2 * heads * rows * self.d_head]
        if state is None:
            state = like_BTE.new_zeros(batch, sum(sizes))
        routed, kept = torch.split(state, sizes, dim=1)
        kept_BH2MK = kept.view(batch, heads, 2, rows, self.d_head).to(dtype).contiguous()
        return routed.view(batch, self.memory_rows, width), None if local is None else kept_BH2MK

    def _clusters(self, k_BHSK: Tensor) -> Tensor:
        """The cluster that each token chooses."""
        with torch.no_grad(), without_autocast(k_BHSK.device):
            return (k_BHSK @ self.mu_HCK.mT.to(k_BHSK.dtype)).argmax(dim=-1)

    @torch.no_grad()
    def _latest(self, cluster_BHS: Tensor, segment: Segment) -> tuple[Tensor, Tensor]:
        """For each query the places of the latest W keys of its cluster, and which of them count.

        Sorted by cluster and place, they stand right before the query.
        """
        memory, keys = self.memory_rows, cluster_BHS.shape[2]
        place_S = torch.arange(keys, device=cluster_BHS.device)
        order_BHS = (cluster_BHS * keys + place_S).argsort(dim=-1)
        rank_BHS = torch.empty_like(order_BHS).scatter_(2, order_BHS, place_S.expand_as(order_BHS))
        back_W = torch.arange(min(self.options.keys, keys), device=cluster_BHS.device)
        rank_BHTW = rank_BHS[:, :, memory:, None] - back_W
        flat_BHR = rank_BHTW.clamp(min=0).flatten(2)
        read_BHTW = order_BHS.gather(2, flat_BHR).view_as(rank_BHTW)
        theirs_BHTW = cluster_BHS.gather(2, read_BHTW.flatten(2)).view_as(rank_BHTW)
        sees_BHTW = (theirs_BHTW == cluster_BHS[:, :, memory:, None]) & (rank_BHTW >= 0)
        # Rows that hold no token yet, and what is too far back for a segment read alone.
        first_B1T = (memory - segment.seen_B).clamp(min=0)[:, None, None]
        if segment.chunk is not None:
            query_T = place_S[: segment.length]
            first_B1T = torch.maximum(first_B1T, query_T - query_T % segment.chunk)
        return read_BHTW, sees_BHTW & (read_BHTW >= first_B1T[..., None])

    def _attend(
        self,
        q_BHSK: Tensor,
        k_BHSK: Tensor,
        value_BHSK: Tensor,
        read_BHTW: Tensor,
        sees_BHTW: Tensor,
    ) -> Tensor:
        shape, width = read_BHTW.shape, self.d_head
        flat_BHRK = read_BHTW.flatten(2)[..., None].expand(-1, -1, -1, width)

        def gathered(rows_BHSK: Tensor) -> Tensor:
            return rows_BHSK.gather(2, flat_BHRK).view(*shape, width)

        q_BHTK = q_BHSK[:, :, self.memory_rows :] * width**-0.5
        score_BHTW = (gathered(k_BHSK) @ q_BHTK[..., None])[..., 0]
        wide = torch.promote_types(score_BHTW.dtype, torch.float32)
        score_BHTW = score_BHTW.to(wide).masked_fill(~sees_BHTW, -torch.inf)
        # The first one is the query itself.
        itself_BHT1 = torch.full_like(score_BHTW[..., :1], ITSELF)
        score_BHTW = torch.cat([itself_BHT1, score_BHTW[..., 1:]], dim=-1)
        weight_BHTW = torch.softmax(score_BHTW, dim=-1).to(value_BHSK.dtype)
        weight_BHTW = drop(weight_BHTW, self.dropout, self.training)
        return (weight_BHTW[..., None, :] @ gathered(value_BHSK))[..., 0, :]

    def _learn(self, k_BHTK: Tensor, cluster_BHT: Tensor) -> Tensor:
        """The loss that draws keys to their centres; in training, what will move the centres."""
        heads_H1 = torch.arange(self.n_heads, device=k_BHTK.device)[:, None]
        centre_BHTK = self.mu_HCK[heads_H1, cluster_BHT].to(k_BHTK.dtype)
        # A search's own pass for alpha trains no weights, and no centres.
        if self.training and self.query_value.weight.requires_grad:
            with torch.no_grad():
                cluster_HR = cluster_BHT.transpose(0, 1).flatten(1)
                k_HRK = k_BHTK.transpose(0, 1).flatten(1, 2).to(self.sum_HCK.dtype)
                self.sum_HCK.scatter_add_(1, cluster_HR[..., None].expand_as(k_HRK), k_HRK)
                ones_HR = torch.ones_like(cluster_HR, dtype=self.count_HC.dtype)
                self.count_HC.scatter_add_(1, cluster_HR, ones_HR)
        return self.options.commitment_loss * F.mse_loss(k_BHTK, centre_BHTK)

    @torch.no_grad()
    def after_step(self, add_up: AddUp) -> None:
        """Move the centres that were chosen towards the mean of their keys, at length 1."""
        add_up([self.sum_HCK, self.count_HC])
        share = 1.0 - self.options.decay
        towards_HCK = F.normalize(self.sum_HCK, dim=-1)
        moved_HCK = F.normalize(torch.lerp(self.mu_HCK, towards_HCK, share), dim=-1)
        self.mu_HCK.copy_(torch.where(self.count_HC[..., None] > 0, moved_HCK, self.mu_HCK))
        self.last_count_HC.copy_(self.count_HC)
        self.sum_HCK.zero_()
        self.count_HC.zero_()

    def describe(self) -> Numbers:
        """Of each head the part of the last step's keys that chose the largest cluster."""
        total_H = self.last_count_HC.sum(dim=1)
        if not bool(total_H.any()):
            return {}
        return {"largest_cluster": (self.last_count_HC.amax(dim=1) / total_H).tolist()}

    def flops(self, batch: int, segment: int, memory: int) -> float:
        """Projections, scores of the centres, and two products for each key that is read."""
        rows, width = self.memory_rows + segment, self.n_heads * self.d_head
        projected = 2.0 * self.query_value.weight.numel() * (memory + segment) / segment
        routed = 2.0 * width * self.options.clusters * rows / segment
        routed += 4.0 * width * min(self.options.keys, rows) + 2.0 * self.output.weight.numel()
        local = 0.0 if self.local is None else self.local.flops(batch, segment, memory)
        return projected + routed + local
