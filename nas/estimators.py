"""Gradient estimators: how a draw of the Gumbel softmax becomes the weights of the candidates.

Letters: L slots, C candidates. Every estimator maps alpha_LC, noise_LC and tau to a Mix: for
each slot the pairs (candidate, weight) that are computed.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from model import Mix


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
    one_hot_LC = torch.zeros_like(y_LC).scatter_(1, y_LC.argmax(1, keepdim=True), 1.0)
    return all_terms(one_hot_LC + (y_LC - y_LC.detach()))


def single_path(alpha_LC: Tensor, noise_LC: Tensor, tau: float) -> Mix:
    """Only the drawn candidate k, its delta times 1 + y_k - sg(y_k) (GDAS, Dong and Yang 2019).

    Differs from the paper: the multiplier stands on the residual delta, not on the slot's whole
    output. A loss behind a layer norm hardly feels the scale of the whole, so that form's
    gradient has little to do with the choice.
    """
    y_LC = relaxed(alpha_LC, noise_LC, tau)
    drawn_L = y_LC.argmax(1).tolist()
    return [[(k, 1.0 + (y_C[k] - y_C[k].detach()))] for k, y_C in zip(drawn_L, y_LC, strict=True)]


ESTIMATORS: dict[str, Callable[[Tensor, Tensor, float], Mix]] = {
    "soft": soft,
    "straight_through": straight_through,
    "single_path": single_path,
}
HARD = frozenset({"straight_through", "single_path"})


def all_terms(weight_LC: Tensor) -> Mix:
    """Every candidate of every slot with the given weight."""
    return [list(enumerate(weight_C.unbind())) for weight_C in weight_LC]


def on_device(mix: Mix, device: torch.device) -> Mix:
    """The mix with its weights on a device, moved in one copy each way.

    Alpha lives on the CPU. A weight left there would have its gradient brought back alone, and
    the GPU would be waited for once for every candidate.
    """
    weights = [weight for terms in mix for _, weight in terms if weight is not None]
    there = iter(torch.stack(weights).to(device, non_blocking=True).unbind() if weights else ())
    return [[(k, None if weight is None else next(there)) for k, weight in terms] for terms in mix]


def soft_net(alpha_LC: Tensor) -> Mix:
    """The evaluation mix of the soft net: pi itself, without noise."""
    return all_terms(torch.softmax(alpha_LC.detach(), dim=-1))


def one_hot_net(alpha_LC: Tensor) -> Mix:
    """The evaluation mix of the one-hot net: the likeliest candidate of every slot."""
    return [[(k, None)] for k in alpha_LC.detach().argmax(1).tolist()]
