"""The practical ceiling: plain causal attention and dense blocks, no memory, no positions.

It does less than any Transformer-XL can do, with the fastest call torch has for it, and with our
own products, softmax, dropout, optimiser and clipping.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.config import SoftmaxConfig
from model.ops import add_dropped, drop, project, relu_layers
from model.softmax import AdaptiveSoftmax
from training.config import OptimiserConfig
from training.optim import build_optimiser, clip_gradients


class CeilingAttention(nn.Module):
    """x + W_o attention(norm x), one packed projection, F.scaled_dot_product_attention."""

    def __init__(self, d_model: int, n_heads: int, dropout: float) -> None:
        super().__init__()
        self.n_heads, self.dropout = n_heads, dropout
        self.norm = nn.LayerNorm(d_model)
        self.qkv = nn.Linear(d_model, 3 * d_model, bias=False)
        self.output = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """X plus what the attention adds."""
        packed_BTE = project(self.norm(x_BTD), self.qkv.weight)
        packed = packed_BTE.view(*packed_BTE.shape[:2], 3, self.n_heads, -1)
        q, k, value = packed.permute(2, 0, 3, 1, 4).unbind()
        out_BHTK = F.scaled_dot_product_attention(q, k, value, is_causal=True)
        delta_BTD = project(out_BHTK.transpose(1, 2).flatten(2), self.output.weight)
        return add_dropped(x_BTD, delta_BTD, self.dropout, self.training)


class CeilingDense(nn.Module):
    """x + W2 relu(W1 norm x)."""

    def __init__(self, d_model: int, d_ffn: int, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.norm = nn.LayerNorm(d_model)
        self.up = nn.Linear(d_model, d_ffn)
        self.down = nn.Linear(d_ffn, d_model)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """X plus what the layers add."""
        layers = (self.up.weight, self.up.bias, self.down.weight, self.down.bias)
        delta_BTD = relu_layers(self.norm(x_BTD), *layers, self.dropout, self.training)
        return add_dropped(x_BTD, delta_BTD, self.dropout, self.training)


class Ceiling(nn.Module):
    """Interleaved blocks between our own tied adaptive embedding and softmax."""

    def __init__(
        self,
        *,
        slots: int,
        d_model: int,
        n_heads: int,
        d_ffn: int,
        dropout: float,
        vocabulary: int,
        softmax: SoftmaxConfig,
        optimiser: OptimiserConfig,
    ) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            CeilingDense(d_model, d_ffn, dropout)
            if slot % 2
            else CeilingAttention(d_model, n_heads, dropout)
            for slot in range(slots)
        )
        self.rate, self.norm = dropout, nn.LayerNorm(d_model)
        self.softmax = AdaptiveSoftmax(vocabulary, d_model, softmax)
        self.config = optimiser
        self.optimiser = build_optimiser(self, optimiser)

    def loss(self, ids_BT: Tensor, target_BT: Tensor) -> Tensor:
        """Mean nats of a segment."""
        x_BTD = drop(self.softmax.embed(ids_BT), self.rate, self.training)
        for block in self.blocks:
            x_BTD = block(x_BTD)
        h_BTD = drop(self.norm(x_BTD), self.rate, self.training)
        return self.softmax.nll(h_BTD, target_BT).mean()

    def step(self, ids_BT: Tensor, target_BT: Tensor) -> Tensor:
        """Forward, backward, clip, update."""
        self.optimiser.zero_grad(set_to_none=True)
        loss = self.loss(ids_BT, target_BT)
        torch.autograd.backward([loss])
        clip_gradients(self.parameters(), self.config)
        self.optimiser.step()
        return loss.detach()
