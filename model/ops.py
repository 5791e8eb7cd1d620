"""Dropout, products and copies to a device, each as a CPU or a GPU does it fastest.

On a CPU torch gives float32 products to MKL; oneDNN, which it has as well, takes a sixth less time
for a layer's result and for the gradient of its input (measured on an AMD EPYC with AVX-512), and
more for the gradient of the weights.

B batch   T segment length   S rows   N rows   D d_model   F inner width   E channels
W width of a kernel
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

_LEVELS = 2**16
_HAS_ONEDNN = torch._C._has_mkldnn and hasattr(torch.ops.mkldnn, "_linear_pointwise")
# Without AVX-512 oneDNN has no bfloat16 and raises where torch's own product only takes longer.
_HAS_BFLOAT16 = _HAS_ONEDNN and torch.ops.mkldnn._is_mkldnn_bf16_supported()
_DTYPES = (torch.float32, torch.bfloat16) if _HAS_BFLOAT16 else (torch.float32,)


@dataclass(frozen=True)
class Dropout:
    """The part of the numbers that training drops, by place; 0 drops nothing.

    `residual` is of what each slot adds and of the softmax's input, `attention` of the attention
    weights, `dense` of the inner layer of a dense block.
    """

    residual: float = 0.0
    embedding: float = 0.0
    attention: float = 0.0
    dense: float = 0.0


NO_DROPOUT = Dropout()


def drop(x: Tensor, rate: float, training: bool) -> Tensor:
    """Dropout (Srivastava et al. 2014): zero with probability `rate`, else times 1 / (1 - rate).

    On a CPU the mask comes from 16 random bits for each number, which is many times faster than
    torch's own (`keep`).
    """
    if not training or rate == 0.0:
        return x
    if _by_torch(x):
        return F.dropout(x, rate, True)
    mask, factor = keep(x, rate)
    return (x * mask).mul_(factor)


def add_dropped(
    x: Tensor, delta: Tensor, rate: float, training: bool, weight: Tensor | None = None
) -> Tensor:
    """`x + weight * drop(delta)`, in the dtype of x; weight is one number, None is 1."""
    rate = rate if training else 0.0
    if _by_torch(x):
        delta = drop(delta, rate, training)
        return x + (delta if weight is None else weight * delta)
    if weight is None and rate == 0.0:
        return x + delta
    added: Tensor = _AddWeighted.apply(x, delta, weight, rate)  # type: ignore[no-untyped-call]
    return added


def keep(like: Tensor, rate: float) -> tuple[Tensor, float]:
    """0 with probability `rate`, else 1, in the shape and dtype of a CPU tensor; 1 / (1 - rate).

    The rate is rounded to a multiple of 1/65536, but neither to 0 nor to 1. The factor is no part
    of the mask: bfloat16 would round it. The generator of the bits is seeded by torch's.
    """
    threshold = min(max(round(rate * _LEVELS), 1), _LEVELS - 1)
    count = like.numel()
    seed = int(torch.randint(2**63 - 1, ()))
    bits_N = np.random.SFC64(seed).random_raw(-(-count // 4)).view(np.int16)[:count]
    mask = torch.empty(like.shape, dtype=like.dtype)
    torch.ge(torch.from_numpy(bits_N).view(like.shape), threshold - _LEVELS // 2, out=mask)
    return mask, _LEVELS / (_LEVELS - threshold)


def _by_torch(x: Tensor) -> bool:
    return x.device.type != "cpu" or torch.compiler.is_compiling()


class _AddWeighted(torch.autograd.Function):
    """What is kept is the mask, and delta for a weight that learns, also one of 0."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, delta: Tensor, weight: Tensor | None, rate: float) -> Tensor:
        mask, ctx.factor = keep(x, rate) if rate else (None, 1.0)
        ctx.delta_dtype = delta.dtype
        ctx.save_for_backward(delta if ctx.needs_input_grad[2] else None, weight, mask)
        wide, scale = delta.to(x.dtype), _scale(weight, ctx.factor)
        if mask is None:
            return torch.add(x, wide, alpha=scale)
        return torch.addcmul(x, wide, mask, value=scale)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor | None, None]:
        delta, weight, mask = ctx.saved_tensors
        delta_grad = grad.clone() if mask is None else grad * mask
        weight_grad = None
        if ctx.needs_input_grad[2]:
            weight_grad = torch.linalg.vecdot(
                delta_grad.flatten(), delta.to(delta_grad.dtype).flatten()
            ).to(weight.dtype)
            weight_grad *= ctx.factor
        scaled = delta_grad.mul_(_scale(weight, ctx.factor))
        return grad, scaled.to(ctx.delta_dtype), weight_grad, None


def _scale(weight: Tensor | None, factor: float) -> float:
    return factor if weight is None else float(weight) * factor


def project(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """F.linear(x, weight, bias)."""
    if not _HAS_ONEDNN or x.dtype != torch.float32 or x.device.type != "cpu":
        return F.linear(x, weight, bias)
    if torch.is_autocast_enabled("cpu") or torch.compiler.is_compiling():
        return F.linear(x, weight, bias)
    projected: Tensor = _Project.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return projected


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """F.linear of CPU tensors of one dtype, without gradients."""
    if not _HAS_ONEDNN or x.dtype not in _DTYPES:
        return F.linear(x, weight, bias)
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


class _Project(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return product(x, weight, bias)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        rows = grad.flatten(0, -2)
        x_grad = product(grad, weight.t()) if ctx.needs_input_grad[0] else None
        weight_grad = rows.t() @ x.flatten(0, -2) if ctx.needs_input_grad[1] else None
        bias_grad = rows.sum(0) if ctx.needs_input_grad[2] else None
        return x_grad, weight_grad, bias_grad


def relu_layers(
    x_BTD: Tensor,
    inner_FD: Tensor,
    inner_F: Tensor,
    outer_DF: Tensor,
    outer_D: Tensor,
    rate: float,
    training: bool,
) -> Tensor:
    """W2 drop(relu(W1 x + b1)) + b2 for every row, the inner layer dropped at `rate`."""
    if _by_torch(x_BTD):
        h_BTF = project(x_BTD, inner_FD, inner_F).relu()
        return project(drop(h_BTF, rate, training), outer_DF, outer_D)
    layers = (inner_FD, inner_F, outer_DF, outer_D)
    rate = rate if training else 0.0
    out: Tensor = _ReluLayers.apply(x_BTD, *layers, rate)  # type: ignore[no-untyped-call]
    return out


class _ReluLayers(torch.autograd.Function):
    """Keeps the inner layer's result alone: it is above 0 exactly where it passes a gradient.

    The factor of what dropout keeps goes into W2, which is smaller and stays in W2's dtype.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x_BTD: Tensor,
        inner_FD: Tensor,
        inner_F: Tensor,
        outer_DF: Tensor,
        outer_D: Tensor,
        rate: float,
    ) -> Tensor:
        working = x_BTD.dtype
        if torch.is_autocast_enabled("cpu"):
            working = torch.get_autocast_dtype("cpu")
        ctx.dtypes = [tensor.dtype for tensor in (x_BTD, inner_FD, inner_F, outer_DF, outer_D)]
        with torch.autocast("cpu", enabled=False):
            x_BTD, inner_FD = x_BTD.to(working), inner_FD.to(working)
            # oneDNN can do the relu as well, but makes 0 of NaN: a broken run would go on.
            h_BTF = product(x_BTD, inner_FD, inner_F.to(working)).relu_()
            factor = 1.0
            if rate:
                mask, factor = keep(h_BTF, rate)
                h_BTF.mul_(mask)
            scaled_DF = _scaled(outer_DF, factor, working)
            out_BTD = product(h_BTF, scaled_DF, outer_D.to(working))
        ctx.factor = factor
        ctx.save_for_backward(x_BTD, inner_FD, outer_DF, h_BTF)
        return out_BTD

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_BTD: Tensor) -> tuple[Tensor | None, ...]:
        x_BTD, inner_FD, outer_DF, h_BTF = ctx.saved_tensors
        scaled_DF = _scaled(outer_DF, ctx.factor, h_BTF.dtype)
        h_grad_BTF = product(grad_BTD, scaled_DF.t())
        h_grad_BTF = torch.ops.aten.threshold_backward(h_grad_BTF, h_BTF, 0)
        x_ND, h_NF = x_BTD.flatten(0, -2), h_BTF.flatten(0, -2)
        grad_ND, h_grad_NF = grad_BTD.flatten(0, -2), h_grad_BTF.flatten(0, -2)
        makes: list[Callable[[], Tensor]] = [
            lambda: product(h_grad_BTF, inner_FD.t()),
            lambda: h_grad_NF.t() @ x_ND,
            lambda: h_grad_NF.sum(0),
            lambda: (grad_ND.t() @ h_NF).to(ctx.dtypes[3]).mul_(ctx.factor),
            lambda: grad_ND.sum(0),
        ]
        wanted = zip(ctx.needs_input_grad, makes, ctx.dtypes, strict=False)
        return *(make().to(dtype) if needed else None for needed, make, dtype in wanted), None


def _scaled(matrix: Tensor, factor: float, dtype: torch.dtype) -> Tensor:
    return (matrix if factor == 1.0 else matrix * factor).to(dtype)


def causal_conv(rows_BSE: Tensor, kernel_WE: Tensor) -> Tensor:
    """sum_j w_j x_{t-j}, channel by channel: (B, T, E) of T tokens behind W - 1 rows."""
    width = kernel_WE.shape[0]
    length = rows_BSE.shape[1] - width + 1
    out_BTE = rows_BSE[:, :length] * kernel_WE[0]
    for row in range(1, width):
        out_BTE = torch.addcmul(out_BTE, rows_BSE[:, row : row + length], kernel_WE[row])
    return out_BTE


def computed_dtype(x: Tensor) -> torch.dtype:
    """What a product of a tensor is computed in: its dtype, or that of an autocast."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """A context in which products keep the dtype of what they multiply."""
    # An exported graph would hold it as a node, which no file format knows.
    if torch.compiler.is_exporting():
        return nullcontext()
    return torch.autocast(device.type, enabled=False)


def to_device(tensors: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """Tensors of one dtype and device, flattened, in one copy, which pinned memory lets overlap."""
    if all(tensor.device == device for tensor in tensors):
        return [tensor.flatten() for tensor in tensors]
    flat_N = torch.cat([tensor.flatten() for tensor in tensors])
    if device.type == "cuda" and flat_N.device.type == "cpu":
        flat_N = flat_N.pin_memory()
    moved_N = flat_N.to(device, non_blocking=True)
    return list(torch.split(moved_N, [tensor.numel() for tensor in tensors]))
