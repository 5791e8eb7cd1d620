"""Persistent vectors alone: a dense block in the form of attention (Sukhbaatar et al. 2019).

B batch   T segment length   D d_model   H heads   K head dim   N vectors
"""

import torch.nn.functional as F
from torch import Tensor, nn

from model.blocks.all_attention import PersistentVectors
from model.blocks.base import linear
from model.blocks.options import PersistentOptions
from model.ops import Dropout, project
from model.state import Segment


class PersistentBlock(nn.Module):
    """W_o sum_n softmax_n(q . k_n / sqrt(d_head)) v_n with q = W_q x, by head.

    All-attention (arXiv 1907.01470, Eq. 9) without its context: a token sees nothing but itself.
    """

    memory_rows = 0
    adds_nothing = False

    def __init__(self, options: PersistentOptions, d_model: int, dropout: Dropout) -> None:
        super().__init__()
        assert options.n_vectors is not None
        self.n_heads, self.d_head, self.dropout = options.n_heads, options.d_head, dropout.attention
        width = self.n_heads * self.d_head
        self.query = linear(d_model, width, bias=False)
        self.vectors = PersistentVectors(options.n_vectors, self.n_heads, self.d_head)
        self.outer = linear(width, d_model, bias=False)

    def forward(self, c_BSD: Tensor, segment: Segment, state: None) -> tuple[Tensor, None, None]:
        """Every token of the segment by itself."""
        q_BTE = project(c_BSD, self.query.weight)
        batch, length, _ = q_BTE.shape
        q_HRK = q_BTE.view(batch * length, self.n_heads, self.d_head).transpose(0, 1)
        key_HNK, value_HNK = (rows.transpose(0, 1).to(q_HRK.dtype) for rows in self.vectors())
        rate = self.dropout if self.training else 0.0
        # An axis more: of three, torch takes its slowest kernel.
        four = (q_HRK[None], key_HNK[None], value_HNK[None])
        out_HRK = F.scaled_dot_product_attention(*four, dropout_p=rate)[0]
        out_BTE = out_HRK.transpose(0, 1).reshape(batch, length, -1)
        return project(out_BTE, self.outer.weight), None, None

    def flops(self, batch: int, segment: int, memory: int) -> float:
        """Two projections, and two products for each vector."""
        projections = 2.0 * (self.query.weight.numel() + self.outer.weight.numel())
        return projections + 4.0 * self.vectors.key_NHK.numel()
