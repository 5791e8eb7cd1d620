"""The position-wise dense block, its gated variants (Shazeer 2020), and blocks of shared weights.

B batch   T segment length   M memory length   S = M + T keys   D d_model   F d_ffn
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from model.blocks.base import LEFT_OUT, BlockOptions, Label, linear
from model.ops import Dropout, drop, project, relu_layers
from model.state import Segment

Activation = Literal["relu", "gelu", "swiglu", "geglu"]
# Weight and bias of the inner layer, then of the outer one.
Layers = tuple[Tensor, Tensor | None, Tensor, Tensor | None]

_ACTIVATE: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "swiglu": F.silu,
    "geglu": F.gelu,
}
_GATED = {"swiglu", "geglu"}
CHUNK = (
    "Parts of the tokens in which a dense block computes its inner layer, one after the other: "
    "less memory at the peak of an evaluation, and of a training with run.recompute; without it a "
    "training keeps all inner layers for the backward pass. Dropout draws other numbers."
)


class InnerLayerOptions(BlockOptions):
    """Options of a candidate that is made of dense blocks."""

    d_ffn: int = Field(default=LEFT_OUT, ge=1, le=2**20, description="Inner width, used as given.")
    activation: Activation = Field(
        default=LEFT_OUT, description="relu and gelu have biases, swiglu and geglu have none."
    )


class DenseOptions(InnerLayerOptions):
    """Options of a dense candidate."""

    added: ClassVar[Mapping[str, Any]] = {"chunk": 1}
    same_result: ClassVar[frozenset[str]] = frozenset({"chunk"})

    kind: Literal["dense"] = "dense"
    label: Label = "dense"
    chunk: int = Field(default=1, ge=1, le=2**20, description=CHUNK)


class DenseBlock(nn.Module):
    """W2 act(W1 x + b1) + b2, or W2 (act(W1 x) * V x) without biases.

    The rows of `inner` are W1, and for a gated activation W1 and then V: the first half of what
    it gives is the gate, the half that is activated.
    """

    memory_rows = 0
    adds_nothing = False

    def __init__(self, options: InnerLayerOptions, d_model: int, dropout: Dropout) -> None:
        super().__init__()
        self.d_ffn, self.activation = options.d_ffn, options.activation
        self.dropout = dropout.dense
        self.chunk = options.chunk if isinstance(options, DenseOptions) else 1
        gated = options.activation in _GATED
        self.inner = linear(d_model, options.d_ffn * (2 if gated else 1), bias=not gated)
        self.outer = linear(options.d_ffn, d_model, bias=not gated)

    def forward(self, c_BSD: Tensor, segment: Segment, state: None) -> tuple[Tensor, None, None]:
        """Apply the two layers to every token of the segment."""
        x_BTD = c_BSD[:, c_BSD.shape[1] - segment.length :]
        return self.run_layers(x_BTD, self.layers(self.d_ffn)), None, None

    def layers(self, width: int) -> Layers:
        """W1 (and V), b1, W2 and b2 of a block whose inner layer is the first `width` units."""
        inner, outer = self.inner, self.outer
        if width == self.d_ffn:
            return inner.weight, inner.bias, outer.weight, outer.bias
        bias = None if inner.bias is None else inner.bias[:width]
        first = inner.weight.view(-1, self.d_ffn, inner.in_features)[:, :width].flatten(0, 1)
        return first, bias, outer.weight[:, :width], outer.bias

    def mixture(self, x_BTD: Tensor, terms: Sequence[tuple[int, Tensor | None]]) -> Tensor:
        """The sum of blocks of these inner widths and weights, at the cost of the widest one.

        A unit of the inner layer counts with the weights of all blocks that have it.
        """
        width = max(width for width, _ in terms)
        inner, inner_bias, outer, outer_bias = self.layers(width)
        one = outer.new_ones(())
        weights = [(w, one if weight is None else weight.to(outer)) for w, weight in terms]
        unit_F = torch.stack([F.pad(weight.expand(w), (0, width - w)) for w, weight in weights])
        if outer_bias is not None:
            outer_bias = outer_bias * torch.stack([weight for _, weight in weights]).sum()
        return self.run_layers(x_BTD, (inner, inner_bias, outer * unit_F.sum(0), outer_bias))

    def run_layers(self, x_BTD: Tensor, layers: Layers) -> Tensor:
        """The outer layer of the activated inner one, token by token, in `chunk` parts."""
        if self.chunk == 1:
            return self._run_part(x_BTD, layers)
        parts_ND = x_BTD.flatten(0, 1).chunk(self.chunk)
        out_ND = torch.cat([self._run_part(part_ND, layers) for part_ND in parts_ND])
        return out_ND.view(*x_BTD.shape[:2], -1)

    def _run_part(self, x_BTD: Tensor, layers: Layers) -> Tensor:
        inner, inner_bias, outer, outer_bias = layers
        if self.activation == "relu":
            assert inner_bias is not None
            assert outer_bias is not None
            weights = (inner, inner_bias, outer, outer_bias)
            return relu_layers(x_BTD, *weights, self.dropout, self.training)
        inner_BTF = project(x_BTD, inner, inner_bias)
        activate = _ACTIVATE[self.activation]
        if self.activation in _GATED:
            gate_BTF, value_BTF = inner_BTF.chunk(2, dim=-1)
            h_BTF = activate(gate_BTF) * value_BTF
        else:
            h_BTF = activate(inner_BTF)
        h_BTF = drop(h_BTF, self.dropout, self.training)
        return project(h_BTF, outer, outer_bias)

    def flops(self, batch: int, segment: int, memory: int) -> float:
        """Two matrices, or three for a gated activation."""
        return 2.0 * (self.inner.weight.numel() + self.outer.weight.numel())


class DensePart(nn.Module):
    """The first `d_ffn` inner units of a wider dense block, whose weights it shares.

    It has none of its own: as AutoFormer's entangled candidates (Chen et al. 2021, arXiv
    2107.00651, section 3.2), narrower blocks are trained whenever wider ones are.
    """

    memory_rows = 0
    adds_nothing = False

    def __init__(self, whole: DenseBlock, d_ffn: int) -> None:
        super().__init__()
        assert d_ffn < whole.d_ffn, (d_ffn, whole.d_ffn)
        # In a tuple: a module in a module would have its weights saved twice.
        self._whole, self.d_ffn = (whole,), d_ffn

    @property
    def whole(self) -> DenseBlock:
        """The block that holds the weights."""
        return self._whole[0]

    def forward(self, c_BSD: Tensor, segment: Segment, state: None) -> tuple[Tensor, None, None]:
        """As a dense block of these layers."""
        x_BTD = c_BSD[:, c_BSD.shape[1] - segment.length :]
        return self.whole.run_layers(x_BTD, self.whole.layers(self.d_ffn)), None, None

    def flops(self, batch: int, segment: int, memory: int) -> float:
        """A part of the whole block's."""
        return self.whole.flops(batch, segment, memory) * self.d_ffn / self.whole.d_ffn
