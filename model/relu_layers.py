"""W2 drop(relu(W1 x + b1)) + b2, the two layers of a dense block; in one piece on a CPU.

N rows   D d_model   F inner width
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from model.dropout import drop, keep
from model.projection import product, project


def relu_layers(
    x_BTD: Tensor,
    inner_FD: Tensor,
    inner_F: Tensor,
    outer_DF: Tensor,
    outer_D: Tensor,
    rate: float,
    training: bool,
) -> Tensor:
    """Both layers applied to every row.

    Args:
        x_BTD: rows.
        inner_FD: W1.
        inner_F: b1.
        outer_DF: W2.
        outer_D: b2.
        rate: dropout of the inner layer.
        training: whether anything is dropped.
    """
    if x_BTD.device.type != "cpu" or torch.compiler.is_compiling():
        h_BTF = project(x_BTD, inner_FD, inner_F).relu()
        return project(drop(h_BTF, rate, training), outer_DF, outer_D)
    given = (x_BTD, inner_FD, inner_F, outer_DF, outer_D)
    out: Tensor = _ReluLayers.apply(*given, rate if training else 0.0)  # type: ignore[no-untyped-call]
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
