"""Weights drawn from a Dirichlet distribution whose mean is pi, with a pathwise gradient.

L slots   C candidates   N terms of a series
"""

import math
from typing import Any

import torch
from torch import Tensor

_LEAST_SHARE = 1e-30  # of pi: below it a candidate has no weight in double precision
_LEAST_EXPONENTIAL = 1e-10  # a standard exponential is below it once in 10^10 draws
_MOST_ROUNDS = 100


def dirichlet_weights(alpha_LC: Tensor, noise_LC: Tensor, tau: float | Tensor) -> Tensor:
    """Draw w from Dirichlet(C tau pi), pi = softmax(alpha), as a smooth function of the noise.

    w_k = z_k / sum_j z_j, where z_k is the quantile of the gamma distribution with shape C tau
    pi_k at exp(-exp(-g_k)), which is uniform. So the draw needs no generator but that of the
    Gumbel noise, and its gradient at frozen noise is the derivative of the quantiles.
    """
    pi_LC = torch.softmax(alpha_LC.double(), dim=-1).clamp(min=_LEAST_SHARE)
    exponential_LC = torch.exp(-noise_LC.double()).clamp(min=_LEAST_EXPONENTIAL)
    log_z_LC = log_gamma_quantile(alpha_LC.shape[-1] * tau * pi_LC, exponential_LC)
    return torch.softmax(log_z_LC, dim=-1).to(alpha_LC.dtype)


def log_gamma_quantile(shape: Tensor, exponential: Tensor) -> Tensor:
    """Log z with P(shape, z) = exp(-exponential), P the gamma distribution's function.

    It is differentiable in the shape. In logarithms, because for a small shape z itself is often
    below the smallest double.
    """
    found: Tensor = _LogGammaQuantile.apply(shape, exponential)  # type: ignore[no-untyped-call]
    return found


class _LogGammaQuantile(torch.autograd.Function):
    """Newton's method on log P, which is concave in log z: from the left it cannot overshoot.

    P(c, z) = z^c exp(-z) / Gamma(c + 1) * S with S = sum_n z^n / ((c + 1) ... (c + n)), so that
    d log P / d log z = c / S.
    """

    @staticmethod
    def forward(ctx: Any, shape: Tensor, exponential: Tensor) -> Tensor:
        gamma = torch.lgamma(shape + 1)
        log_z = (gamma - exponential) / shape  # where S exp(-z) = 1; it is never more
        for _ in range(_MOST_ROUNDS):
            series, _ = _series(shape, log_z)
            log_p = shape * log_z - log_z.exp() - gamma + series.log()
            rise = -(log_p + exponential) * series / shape
            log_z = log_z + rise
            if bool((rise.abs() <= 1e-10 * (1 + log_z.abs())).all()):
                break
        ctx.save_for_backward(shape, log_z)
        return log_z

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """By the rule of implicit functions, -(d log P / dc) / (d log P / d log z)."""
        shape, log_z = ctx.saved_tensors
        series, slope = _series(shape, log_z)
        return -grad * (series * (log_z - torch.digamma(shape + 1)) + slope) / shape, None


def _series(shape: Tensor, log_z: Tensor) -> tuple[Tensor, Tensor]:
    """S and dS/dc, to the last digit for every z that the clamped exponential allows."""
    # At least 2, so that the usual shapes take equally many terms, and equal memory.
    count = 90 + 15 * max(2, math.ceil(math.sqrt(float(shape.max()))))
    below_N = shape.unsqueeze(-1) + torch.arange(1, count + 1, dtype=shape.dtype)
    term_N = torch.cumprod(log_z.exp().unsqueeze(-1) / below_N, dim=-1)
    slope = -(term_N * torch.cumsum(1 / below_N, dim=-1)).sum(-1)
    return 1 + term_N.sum(-1), slope
