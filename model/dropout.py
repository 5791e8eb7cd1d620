"""Where training sets numbers to 0, how many of them, and how it is done cheaply on a CPU."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

_LEVELS = 2**16


@dataclass(frozen=True)
class Dropout:
    """The part of the numbers that training drops, by place; 0 drops nothing.

    Attributes:
        residual: of what each slot adds, and of the input of the softmax.
        embedding: of the embeddings.
        attention: of the attention weights.
        dense: of the inner layer of a dense block.
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

    The rate is rounded to a multiple of 1/65536, but neither to 0 nor to 1, and the factor is the
    one that belongs to it. It is no part of the mask: bfloat16 would round it, and the mean of
    all that is kept with it. The bits come from a generator that is seeded by torch's, so that
    torch's state decides.
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
    """What is kept is the mask; a weight of 0 has a gradient all the same."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, delta: Tensor, weight: Tensor | None, rate: float) -> Tensor:
        mask, ctx.factor = keep(x, rate) if rate else (None, 1.0)
        ctx.delta_dtype = delta.dtype
        ctx.save_for_backward(None if weight is None else delta, weight, mask)
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
