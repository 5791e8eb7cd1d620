"""The position-wise dense block and its gated variants (Shazeer 2020).

B batch   T segment length   M memory length   S = M + T keys   D d_model   F d_ffn
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.blocks.base import linear
from model.blocks.options import DenseOptions, InnerLayerOptions
from model.ops import Dropout, drop, project, relu_layers
from model.state import Segment

_ACTIVATE: dict[str, Callable[[Tensor], Tensor]] = {
    # So et al. 2021, Primer, arXiv 2109.08668.
    "relu2": lambda x_BTF: x_BTF.relu().square(),
    "gelu": F.gelu,
    "swiglu": F.silu,
    "geglu": F.gelu,
}
_GATED = {"swiglu", "geglu"}


class DenseBlock(nn.Module):
    """W2 act(W1 x + b1) + b2, or W2 (act(W1 x) * V x) without biases.

    The rows of `inner` are W1, and for a gated activation W1 and then V: the first half of what
    it gives is the gate, the half that is activated.
    """

    memory_rows = 0
    adds_nothing = False

    def __init__(self, options: InnerLayerOptions, d_model: int, dropout: Dropout) -> None:
        super().__init__()
        self.activation = options.activation
        self.dropout = dropout.dense
        self.chunk = options.chunk if isinstance(options, DenseOptions) else 1
        gated = options.activation in _GATED
        self.inner = linear(d_model, options.d_ffn * (2 if gated else 1), bias=not gated)
        self.outer = linear(options.d_ffn, d_model, bias=not gated)

    def forward(self, c_BSD: Tensor, segment: Segment, state: None) -> tuple[Tensor, None, None]:
        """Apply the two layers to every token of the segment, in `chunk` parts."""
        x_BTD = c_BSD[:, c_BSD.shape[1] - segment.length :]
        if self.chunk == 1:
            return self._layers(x_BTD), None, None
        parts_ND = x_BTD.flatten(0, 1).chunk(self.chunk)
        out_ND = torch.cat([self._layers(part_ND) for part_ND in parts_ND])
        return out_ND.view(x_BTD.shape), None, None

    def _layers(self, x_BTD: Tensor) -> Tensor:
        inner, outer = self.inner, self.outer
        if self.activation == "relu":
            weights = (inner.weight, inner.bias, outer.weight, outer.bias)
            return relu_layers(x_BTD, *weights, self.dropout, self.training)
        inner_BTF = project(x_BTD, inner.weight, inner.bias)
        activate = _ACTIVATE[self.activation]
        if self.activation in _GATED:
            gate_BTF, value_BTF = inner_BTF.chunk(2, dim=-1)
            h_BTF = activate(gate_BTF) * value_BTF
        else:
            h_BTF = activate(inner_BTF)
        h_BTF = drop(h_BTF, self.dropout, self.training)
        return project(h_BTF, outer.weight, outer.bias)

    def flops(self, batch: int, segment: int, memory: int) -> float:
        """Two matrices, or three for a gated activation."""
        return 2.0 * (self.inner.weight.numel() + self.outer.weight.numel())
