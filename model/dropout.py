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
    torch's own; the rate is then a multiple of 1/65536, and the factor is the one that belongs to
    it, so that the mean stays exact.
    """
    if not training or rate == 0.0:
        return x
    if _by_torch(x):
        return F.dropout(x, rate, True)
    return x * keep_mask(x, rate)


def relu_drop(x: Tensor, rate: float, training: bool) -> Tensor:
    """`drop(relu(x))`; on a CPU in one piece, which keeps nothing but its result."""
    if not training or rate == 0.0 or _by_torch(x):
        return drop(x.relu(), rate, training)
    dropped: Tensor = _ReluDrop.apply(x, rate)  # type: ignore[no-untyped-call]
    return dropped


def keep_mask(like: Tensor, rate: float) -> Tensor:
    """0 with probability `rate`, else 1 / (1 - rate), in the shape and dtype of a CPU tensor.

    The bits come from a generator that is seeded by torch's, so that torch's state decides.
    """
    threshold = round(rate * _LEVELS)
    count = like.numel()
    seed = int(torch.randint(2**63 - 1, ()))
    bits_N = np.random.SFC64(seed).random_raw(-(-count // 4)).view(np.int16)[:count]
    mask = torch.empty(like.shape, dtype=like.dtype)
    torch.ge(torch.from_numpy(bits_N).view(like.shape), threshold - _LEVELS // 2, out=mask)
    return mask.mul_(_LEVELS / (_LEVELS - threshold))


def _by_torch(x: Tensor) -> bool:
    return x.device.type != "cpu" or torch.compiler.is_compiling()


class _ReluDrop(torch.autograd.Function):
    """A number of the result is above 0 exactly where its input was and was kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rate: float) -> Tensor:
        threshold = round(rate * _LEVELS)
        ctx.scale = _LEVELS / (_LEVELS - threshold)
        y = x.clamp_min(0).mul_(keep_mask(x, rate))
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (y,) = ctx.saved_tensors
        return torch.ops.aten.threshold_backward(grad, y, 0).mul_(ctx.scale), None
