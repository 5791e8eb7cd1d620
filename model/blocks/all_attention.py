"""Attention over the context and persistent vectors in one softmax (Sukhbaatar et al. 2019).

"Augmenting Self-attention with Persistent Memory", arXiv 1907.01470.

B batch   T segment length   S = M + T keys   D d_model   H heads   K head dim   N vectors
"""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.attention_kernels import AttentionInputs, content_queries, score_bias
from model.blocks.attention import AttentionBlock
from model.blocks.options import AllAttentionOptions
from model.ops import Dropout
from model.state import Segment


class PersistentVectors(nn.Module):
    """N keys and values of each head that all positions of all texts see (Eq. 5 and 9).

    Stored with variance 1/K and 1/N and multiplied by the roots of K and N when they are used, so
    that they begin with variance 1 and Adam moves them faster (section 4.2).
    """

    def __init__(self, vectors: int, heads: int, width: int) -> None:
        super().__init__()
        self.key_NHK = nn.Parameter(torch.randn(vectors, heads, width) * width**-0.5)
        self.value_NHK = nn.Parameter(torch.randn(vectors, heads, width) * vectors**-0.5)

    def forward(self) -> tuple[Tensor, Tensor]:
        """Keys and values as they are used."""
        vectors, _, width = self.key_NHK.shape
        return self.key_NHK * width**0.5, self.value_NHK * vectors**0.5


class AllAttentionBlock(nn.Module):
    """Relative attention whose softmax runs over the context and N persistent vectors.

    A persistent key has no position, mask or norm, and meets queries that are not turned.

    Differs from the paper: by default positions are Transformer-XL's; the content bias u is added
    to the queries of persistent keys too.
    """

    adds_nothing = False

    def __init__(self, options: AllAttentionOptions, d_model: int, dropout: Dropout) -> None:
        super().__init__()
        assert options.n_vectors is not None
        self.attention = AttentionBlock(options, d_model, dropout)
        self.vectors = PersistentVectors(options.n_vectors, options.n_heads, options.d_head)
        self.memory_rows = self.attention.memory_rows

    def forward(
        self, c_BSD: Tensor, segment: Segment, state: Tensor | None
    ) -> tuple[Tensor, Tensor | None, None]:
        """The state is attention's."""
        if segment.cached:
            # Multiplied once for all segments of an evaluation.
            both_2NHK = segment.once_per_evaluation(self, lambda: torch.stack(self.vectors()))
            return self.attention(c_BSD, segment, state, persistent_2NHK=both_2NHK)
        key_NHK, value_NHK = self.vectors()
        kernel = partial(_beside, key_NHK=key_NHK, value_NHK=value_NHK)
        return self.attention(c_BSD, segment, state, kernel)

    def flops(self, batch: int, segment: int, memory: int) -> float:
        """Attention's, and two products for each vector, or with rope three, in a padded block."""
        padded = self.attention.computed(segment)[0] / segment
        products = 6.0 if self.attention.positions == "rope" else 4.0
        return (
            self.attention.flops(batch, segment, memory)
            + products * self.vectors.key_NHK.numel() * padded
        )


def _beside(inputs: AttentionInputs, rate: float, *, key_NHK: Tensor, value_NHK: Tensor) -> Tensor:
    """Attention over the keys and, behind them, the persistent ones with a bias of 0.

    Where these meet plain queries their scores are the bias, and the keys 0.
    """
    batch, dtype = inputs.k_BSHK.shape[0], inputs.k_BSHK.dtype
    bias_BHTS = score_bias(inputs)
    if inputs.plain_BTHK is None:
        bias_BHTS = F.pad(bias_BHTS, (0, key_NHK.shape[0]))
    else:
        plain_BHTK = content_queries(inputs.plain_BTHK, inputs.u_HK, dtype)
        score_BHTN = plain_BHTK @ key_NHK.permute(1, 2, 0).to(dtype)
        bias_BHTS = bias_BHTS.expand(*score_BHTN.shape[:3], -1)
        bias_BHTS, key_NHK = torch.cat([bias_BHTS, score_BHTN], -1), torch.zeros_like(key_NHK)

    def joined(rows_BSHK: Tensor, vector_NHK: Tensor) -> Tensor:
        vector_BNHK = vector_NHK.to(dtype).expand(batch, *vector_NHK.shape)
        return torch.cat([rows_BSHK, vector_BNHK], dim=1).transpose(1, 2)

    out_BHTK = F.scaled_dot_product_attention(
        content_queries(inputs.q_BTHK, inputs.u_HK, dtype),
        joined(inputs.k_BSHK, key_NHK),
        joined(inputs.value_BSHK, value_NHK),
        attn_mask=bias_BHTS.to(dtype),
        dropout_p=rate,
        scale=1.0,
    )
    return out_BHTK.transpose(1, 2)
