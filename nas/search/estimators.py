"""Gradient estimators: how a draw of the Gumbel softmax becomes the weights of the candidates.

Every estimator maps alpha_LC, noise_LC and tau to a Mix: for each slot the pairs (candidate,
weight) that are computed; a weight of None is 1 without a gradient.

L slots   C candidates   N terms of a series
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from model.language_model import Mix

_STREAM = 0x70690001
_LEAST_SHARE = 1e-30  # of pi: below it a candidate has no weight in double precision
_LEAST_EXPONENTIAL = 1e-10  # a standard exponential is below it once in 10^10 draws
_MOST_ROUNDS = 100


def gumbel_noise(seed: int, draw: int, slots: int, candidates: int) -> Tensor:
    """Standard Gumbel noise, one row per slot.

    Every draw has a generator of its own, seeded by (seed, draw): a resume, a recomputation or
    another rank sees the same noise without any state. The noise is -log of an exponential
    variate, which unlike -log(-log U) is never infinite for a variate above 0. On the CPU.
    """
    generator = np.random.default_rng([_STREAM, seed, draw])
    exponential_LC = generator.standard_exponential((slots, candidates))
    floor = np.finfo(np.float64).tiny
    return torch.from_numpy(-np.log(np.maximum(exponential_LC, floor))).float()


def dirichlet_weights(alpha_LC: Tensor, noise_LC: Tensor, tau: float) -> Tensor:
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

    Differentiable in the shape. z itself is often below the smallest double for a small shape.
    """
    log_z: Tensor = _LogGammaQuantile.apply(shape, exponential)  # type: ignore[no-untyped-call]
    return log_z


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
        shape, log_z = ctx.saved_tensors
        # By the rule of implicit functions: -(d log P / dc) / (d log P / d log z).
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


def relaxed(alpha_LC: Tensor, noise_LC: Tensor, tau: float) -> Tensor:
    """Y = softmax((alpha + g) / tau) (Jang et al. 2017, Eq. 2)."""
    return torch.softmax((alpha_LC + noise_LC) / tau, dim=-1)


def soft(alpha_LC: Tensor, noise_LC: Tensor, tau: float) -> Mix:
    """Every candidate with its relaxed weight y (Jang et al. 2017)."""
    return all_terms(relaxed(alpha_LC, noise_LC, tau))


def straight_through(alpha_LC: Tensor, noise_LC: Tensor, tau: float) -> Mix:
    """One-hot in the forward pass, the gradient of y in the backward pass (Jang et al. 2017, 2.2).

    Every candidate is computed, because each one's output enters the gradient of alpha.
    """
    y_LC = relaxed(alpha_LC, noise_LC, tau)
    # Not y's argmax: at a large tau y rounds to ties, and to another draw than single_path's.
    drawn_L1 = (alpha_LC + noise_LC).argmax(1, keepdim=True)
    one_hot_LC = torch.zeros_like(y_LC).scatter_(1, drawn_L1, 1.0)
    # The brackets matter: y - y is exactly 0, while (one_hot + y) - y rounds off the one-hot.
    return all_terms(one_hot_LC + (y_LC - y_LC.detach()))


def single_path(alpha_LC: Tensor, noise_LC: Tensor, tau: float) -> Mix:
    """Only the drawn candidate k, its delta times 1 + y_k - sg(y_k) (GDAS, Dong and Yang 2019).

    Differs from the paper: the multiplier stands on the residual delta, not on the slot's whole
    output. A loss behind a layer norm hardly feels the scale of the whole, so that form's
    gradient has little to do with the choice.
    """
    y_LC = relaxed(alpha_LC, noise_LC, tau)
    drawn_L = (alpha_LC + noise_LC).argmax(1).tolist()
    return [[(k, 1.0 + (y_C[k] - y_C[k].detach()))] for k, y_C in zip(drawn_L, y_LC, strict=True)]


def two_path(alpha_LC: Tensor, noise_LC: Tensor, tau: float) -> Mix:
    """The first two candidates drawn, the first active (ProxylessNAS, Cai et al. 2019, 3.2.1).

    The two largest of alpha + g are a draw from pi without replacement. With y' the softmax over
    the two of (alpha + g) / tau, the weights are 1 + y'_1 - sg(y'_1) and y'_2 - sg(y'_2): the
    forward pass is that of `single_path` under the same noise, and with a_k the loss's slope in
    k's weight the gradient is y'_j (a_j - y'_1 a_1 - y'_2 a_2) / tau for the two, 0 for others.

    Differs from the paper: which of the two is active is not drawn once more, because the first
    is a draw from pi itself; y' depends on the noise and on tau, so that a small tau takes the
    bias away (the paper's are pi's renormalised); the multiplier stands on the delta.
    """
    logits_LP, pair_LP = (alpha_LC + noise_LC).topk(min(2, alpha_LC.shape[1]), dim=1)
    y_LP = torch.softmax(logits_LP / tau, dim=1)
    weight_LP = (y_LP - y_LP.detach()) + torch.eye(1, y_LP.shape[1]).to(y_LP)
    return [
        list(zip(pair, weight_P.unbind(), strict=True))
        for pair, weight_P in zip(pair_LP.tolist(), weight_LP, strict=True)
    ]


def spos(alpha_LC: Tensor, noise_LC: Tensor, tau: float) -> Mix:
    """One candidate drawn uniformly, its delta as it is (Single Path One-Shot, Guo et al. 2020).

    alpha has no part in it and gets no gradient: the weights learn to serve every layout alike.
    """
    return [[(k, None)] for k in noise_LC.argmax(1).tolist()]


def dirichlet(alpha_LC: Tensor, noise_LC: Tensor, tau: float) -> Mix:
    """Every candidate with a weight drawn from a Dirichlet of mean pi (DrNAS, Chen et al. 2021).

    The gradient is the pathwise one, unbiased for the expected loss of the weighted sum. The
    concentrations are C tau pi: at tau 1 and alpha 0 all are 1, where the paper begins as well;
    a small tau draws weights near one-hot, by pi, and a large one draws pi itself.

    Differs from the paper: there the concentrations are elu(beta) + 1, whose sum is free and is
    held by a penalty; here tau sets the sum, so that the mean is pi and alpha means what it means
    to the other estimators.
    """
    return all_terms(dirichlet_weights(alpha_LC, noise_LC, tau))


ESTIMATORS: dict[str, Callable[[Tensor, Tensor, float], Mix]] = {
    "soft": soft,
    "straight_through": straight_through,
    "single_path": single_path,
    "two_path": two_path,
    "dirichlet": dirichlet,
    "spos": spos,
}


def all_terms(weight_LC: Tensor) -> Mix:
    """Every candidate of every slot with the given weight."""
    return [list(enumerate(weight_C.unbind())) for weight_C in weight_LC]


def on_device(mix: Mix, device: torch.device) -> Mix:
    """The mix with its weights on a device, moved in one copy each way.

    Alpha lives on the CPU. Weights moved one by one would have the GPU waited for once for every
    candidate's gradient.
    """
    weights = [weight for terms in mix for _, weight in terms if weight is not None]
    moved = iter(torch.stack(weights).to(device, non_blocking=True).unbind() if weights else ())
    return [[(k, None if weight is None else next(moved)) for k, weight in terms] for terms in mix]


def soft_net(alpha_LC: Tensor) -> Mix:
    """The evaluation mix of the soft net: pi itself, without noise."""
    return all_terms(torch.softmax(alpha_LC.detach(), dim=-1))


def one_hot_net(alpha_LC: Tensor) -> Mix:
    """The evaluation mix of the one-hot net: the likeliest candidate of every slot."""
    return [[(k, None)] for k in alpha_LC.detach().argmax(1).tolist()]
