"""A table of values, found by products of keys (Lample et al. 2019, arXiv 1907.05242).

R tokens of all streams   D d_model   H heads   W width of a half query   N keys of a half
K values for each head and token
"""

from collections.abc import Mapping
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.blocks.base import linear
from model.blocks.options import ProductKeyMemoryOptions
from model.ops import Dropout, drop, project
from model.state import Segment


class ProductKeyMemoryBlock(nn.Module):
    """sum_h sum_k softmax_k(s) v over the k keys of largest s = q_1 . a_i + q_2 . b_j, by head.

    The best k of all n^2 pairs are among the pairs of the best k of each half (section 3.2). The
    values are trained at ten times the learning rate, as each is read rarely.

    Differs from the paper: queries have a layer norm in the place of a batch norm, which would let
    streams see each other.
    """

    memory_rows = 0
    adds_nothing = False
    rate_factors: ClassVar[Mapping[str, float]] = {"value_ND": 10.0}

    def __init__(self, options: ProductKeyMemoryOptions, d_model: int, dropout: Dropout) -> None:
        super().__init__()
        assert options.d_key is not None
        self.heads, self.k, self.dropout = options.heads, options.k, dropout.dense
        keys, width = options.n_keys, options.d_key
        self.query = linear(d_model, self.heads * 2 * width, bias=False)
        self.norm = nn.LayerNorm(2 * width)
        self.key_H2NW = nn.Parameter(torch.empty(self.heads, 2, keys, width))
        nn.init.uniform_(self.key_H2NW, -(width**-0.5), width**-0.5)
        self.value_ND = nn.Parameter(torch.randn(keys**2, d_model) * d_model**-0.5)

    def forward(self, c_BSD: Tensor, segment: Segment, state: None) -> tuple[Tensor, None, None]:
        """Every token of the segment by itself."""
        x_BTD = c_BSD[:, c_BSD.shape[1] - segment.length :]
        # In float32 at least: in bfloat16 near scores are ties, and other values would be read.
        wide = torch.promote_types(x_BTD.dtype, torch.float32)
        with torch.autocast(x_BTD.device.type, enabled=False):
            weight_RM, number_RM = self.read(x_BTD.flatten(0, 1).to(wide))
        out_RD = F.embedding_bag(
            number_RM,
            self.value_ND,
            per_sample_weights=weight_RM.to(self.value_ND.dtype),
            mode="sum",
        )
        out_BTD = out_RD.to(x_BTD.dtype).view_as(x_BTD)
        return drop(out_BTD, self.dropout, self.training), None, None

    def read(self, x_RD: Tensor) -> tuple[Tensor, Tensor]:
        """The weights and the numbers of the H K values of each token, in the dtype of x."""
        keys, dtype = self.key_H2NW.shape[2], x_RD.dtype
        q_RHE = project(x_RD, self.query.weight.to(dtype)).view(x_RD.shape[0], self.heads, -1)
        scale_E, shift_E = self.norm.weight.to(dtype), self.norm.bias.to(dtype)
        q_RHE = F.layer_norm(q_RHE, scale_E.shape, scale_E, shift_E, self.norm.eps)
        q_H2RW = q_RHE.view(*q_RHE.shape[:2], 2, -1).permute(1, 2, 0, 3)
        score_H2RN = q_H2RW @ self.key_H2NW.mT.to(dtype)
        best_H2RK, place_H2RK = score_H2RN.topk(self.k, dim=-1)
        one_HRK, two_HRK = best_H2RK.unbind(1)
        sum_HRP = (one_HRK[..., :, None] + two_HRK[..., None, :]).flatten(2)
        pair_HRP = (place_H2RK[:, 0, :, :, None] * keys + place_H2RK[:, 1, :, None]).flatten(2)
        top_HRK, among_HRK = sum_HRP.topk(self.k, dim=-1)
        number_HRK = pair_HRP.gather(2, among_HRK)
        weight_HRK = top_HRK.softmax(dim=-1)
        return weight_HRK.transpose(0, 1).flatten(1), number_HRK.transpose(0, 1).flatten(1)

    def flops(self, batch: int, segment: int, memory: int) -> float:
        """The queries, the scores of the half keys, and the sum of the values.

        Time goes into reading the values, which no FLOP counts: measure a latency.
        """
        found = 2.0 * self.heads * self.k * self.value_ND.shape[1]
        return 2.0 * (self.query.weight.numel() + self.key_H2NW.numel()) + found
