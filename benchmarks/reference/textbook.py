"""A textbook Transformer-XL and its training step, as the paper's text and appendix B read.

Queries, keys and values are computed over the memory rows too, the position scores are shifted by
padding a column, the mask is built in every call, dropout is `nn.Dropout`, Adam is not fused.
Pre-norm as ours, so that both sides compute the same function of the same sizes.
"""

from itertools import pairwise
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class TextbookAttention(nn.Module):
    """Relative attention over [memory; x] (Dai et al. 2019, section 3.3 and appendix B)."""

    def __init__(self, d_model: int, n_heads: int, dropout: float) -> None:
        super().__init__()
        self.n_heads, self.d_head = n_heads, d_model // n_heads
        self.qkv = nn.Linear(d_model, 3 * d_model, bias=False)
        self.position = nn.Linear(d_model, d_model, bias=False)
        self.output = nn.Linear(d_model, d_model, bias=False)
        self.u_HK = nn.Parameter(torch.zeros(n_heads, self.d_head))
        self.v_HK = nn.Parameter(torch.zeros(n_heads, self.d_head))
        self.norm = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x_BTD: Tensor, memory_BMD: Tensor, r_SD: Tensor) -> Tensor:
        """X plus what the attention adds."""
        segment = x_BTD.shape[1]
        c_BSD = self.norm(torch.cat([memory_BMD, x_BTD], dim=1))
        heads = (self.n_heads, self.d_head)
        q, k, value = (part.unflatten(-1, heads) for part in self.qkv(c_BSD).chunk(3, dim=-1))
        q = q[:, -segment:]
        r_SHK = self.position(r_SD).unflatten(-1, heads)
        content_BHTS = torch.einsum("bthk,bshk->bhts", q + self.u_HK, k)
        position_BHTS = _shift(torch.einsum("bthk,shk->bhts", q + self.v_HK, r_SHK))
        score_BHTS = (content_BHTS + position_BHTS) / self.d_head**0.5
        keys = c_BSD.shape[1]
        ones_TS = torch.ones(segment, keys, device=x_BTD.device)
        hidden_TS = ones_TS.triu(1 + keys - segment).bool()
        weight_BHTS = score_BHTS.masked_fill(hidden_TS, float("-inf")).softmax(-1)
        out_BTHK = torch.einsum("bhts,bshk->bthk", weight_BHTS, value)
        return x_BTD + self.dropout(self.output(out_BTHK.flatten(2)))


def _shift(raw_BHTS: Tensor) -> Tensor:
    batch, heads, segment, keys = raw_BHTS.shape
    padded = torch.cat([raw_BHTS.new_zeros(batch, heads, segment, 1), raw_BHTS], dim=-1)
    return padded.view(batch, heads, keys + 1, segment)[:, :, 1:].reshape(raw_BHTS.shape)


class TextbookDense(nn.Module):
    """x + W2 relu(W1 x)."""

    def __init__(self, d_model: int, d_ffn: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.layers = nn.Sequential(
            nn.Linear(d_model, d_ffn),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(d_ffn, d_model),
            nn.Dropout(dropout),
        )

    def forward(self, x_BTD: Tensor) -> Tensor:
        """X plus what the layers add."""
        return x_BTD + self.layers(self.norm(x_BTD))


class Textbook(nn.Module):
    """Interleaved attention and dense blocks between a tied adaptive embedding and softmax."""

    def __init__(
        self,
        *,
        slots: int,
        d_model: int,
        n_heads: int,
        d_ffn: int,
        memory: int,
        dropout: float,
        vocabulary: int,
        cutoffs: tuple[int, ...],
    ) -> None:
        super().__init__()
        self.d_model, self.memory, self.cutoffs = d_model, memory, cutoffs
        self.blocks = nn.ModuleList(
            TextbookDense(d_model, d_ffn, dropout)
            if slot % 2
            else TextbookAttention(d_model, n_heads, dropout)
            for slot in range(slots)
        )
        self.norm, self.dropout = nn.LayerNorm(d_model), nn.Dropout(dropout)
        self.softmax = nn.AdaptiveLogSoftmaxWithLoss(d_model, vocabulary, list(cutoffs))
        self.optimiser = torch.optim.Adam(self.parameters(), lr=1e-4)
        self.memories: dict[int, Tensor] = {}

    def embed(self, ids_BT: Tensor) -> Tensor:
        """Rows of the softmax's own tables."""
        id_N = ids_BT.flatten()
        out_ND = self.softmax.head.weight.new_zeros(len(id_N), self.d_model)
        bounds = [0, *self.cutoffs, self.softmax.n_classes]
        for cluster, (low, high) in enumerate(pairwise(bounds)):
            row_R = ((id_N >= low) & (id_N < high)).nonzero().squeeze(1)
            if row_R.numel() == 0:
                continue
            word_R = id_N[row_R] - low
            if cluster == 0:
                part = F.embedding(word_R, self.softmax.head.weight)
            else:
                tail = cast(nn.Sequential, self.softmax.tail[cluster - 1])
                projection, table = (cast(nn.Linear, layer).weight for layer in tail)
                part = F.embedding(word_R, table) @ projection
            out_ND = out_ND.index_copy(0, row_R, part)
        return out_ND.view(*ids_BT.shape, -1) * self.d_model**0.5

    def loss(self, ids_BT: Tensor, target_BT: Tensor) -> Tensor:
        """Mean nats of a segment; the memories go on."""
        x_BTD = self.dropout(self.embed(ids_BT))
        empty_BMD = x_BTD.new_zeros(len(ids_BT), self.memory, self.d_model)
        keys = self.memory + ids_BT.shape[1]
        like = {"dtype": x_BTD.dtype, "device": x_BTD.device}
        distance_S1 = torch.arange(keys - 1, -1, -1.0, **like)[:, None]
        half = torch.arange(0, self.d_model, 2.0, **like)
        angle = distance_S1 / 10000 ** (half / self.d_model)
        r_SD = torch.cat([angle.sin(), angle.cos()], dim=-1)
        for slot, block in enumerate(self.blocks):
            if not isinstance(block, TextbookAttention):
                x_BTD = block(x_BTD)
                continue
            memory_BMD = self.memories.get(slot, empty_BMD)
            both_BSD = torch.cat([memory_BMD, x_BTD], dim=1)
            self.memories[slot] = both_BSD[:, -self.memory :].detach()
            x_BTD = block(x_BTD, memory_BMD, r_SD)
        h_ND = self.dropout(self.norm(x_BTD)).flatten(0, 1)
        return self.softmax(h_ND, target_BT.flatten()).loss

    def step(self, ids_BT: Tensor, target_BT: Tensor) -> Tensor:
        """Forward, backward, clip, update."""
        self.optimiser.zero_grad()
        loss = self.loss(ids_BT, target_BT)
        torch.autograd.backward([loss])
        nn.utils.clip_grad_norm_(self.parameters(), 0.25)
        self.optimiser.step()
        return loss.detach()
