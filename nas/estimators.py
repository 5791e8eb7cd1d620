"""Gradient estimators: how a draw of the Gumbel softmax becomes the weights of the candidates.

Letters: L slots, C candidates. Every estimator maps alpha_LC, noise_LC and tau to a Mix: for
each slot the pairs (candidate, weight) that are computed.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from model import Mix
from nas.dirichlet import dirichlet_weights

Tau = float | Tensor


def relaxed(alpha_LC: Tensor, noise_LC: Tensor, tau: Tau) -> Tensor:
    """Y = softmax((alpha + g) / tau) (Jang et al. 2017, Eq. 2)."""
    return torch.softmax((alpha_LC + noise_LC) / tau, dim=-1)


def soft(alpha_LC: Tensor, noise_LC: Tensor, tau: Tau) -> Mix:
    """Every candidate with its relaxed weight y (Jang et al. 2017)."""
    return all_terms(relaxed(alpha_LC, noise_LC, tau))


def straight_through(alpha_LC: Tensor, noise_LC: Tensor, tau: Tau) -> Mix:
    """One-hot in the forward pass, the gradient of y in the backward pass (Jang et al. 2017, 2.2).

    Every candidate is computed, because each one's output enters the gradient of alpha.
    """
    y_LC = relaxed(alpha_LC, noise_LC, tau)
    drawn_L1 = (alpha_LC + noise_LC).argmax(1, keepdim=True)
    one_hot_LC = torch.zeros_like(y_LC).scatter_(1, drawn_L1, 1.0)
    return all_terms(one_hot_LC + (y_LC - y_LC.detach()))


def single_path(alpha_LC: Tensor, noise_LC: Tensor, tau: Tau) -> Mix:
    """Only the drawn candidate k, its delta times 1 + y_k - sg(y_k) (GDAS, Dong and Yang 2019).

    Differs from the paper: the multiplier stands on the residual delta, not on the slot's whole
    output. A loss behind a layer norm hardly feels the scale of the whole, so that form's
    gradient has little to do with the choice.
    """
    y_LC = relaxed(alpha_LC, noise_LC, tau)
    drawn_L = (alpha_LC + noise_LC).argmax(1).tolist()
    return [[(k, 1.0 + (y_C[k] - y_C[k].detach()))] for k, y_C in zip(drawn_L, y_LC, strict=True)]


def two_path(alpha_LC: Tensor, noise_LC: Tensor, tau: Tau) -> Mix:
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


def spos(alpha_LC: Tensor, noise_LC: Tensor, tau: Tau) -> Mix:
    """One candidate drawn uniformly, its delta as it is (Single Path One-Shot, Guo et al. 2020).

    alpha has no part in it and gets no gradient: the weights learn to serve every layout alike.
    """
    return [[(k, None)] for k in noise_LC.argmax(1).tolist()]


def dirichlet(alpha_LC: Tensor, noise_LC: Tensor, tau: Tau) -> Mix:
    """Every candidate with a weight drawn from a Dirichlet of mean pi (DrNAS, Chen et al. 2021).

    The gradient is the pathwise one, unbiased for the expected loss of the weighted sum. The
    concentrations are C tau pi: at tau 1 and alpha 0 all are 1, where the paper begins as well;
    a small tau draws weights near one-hot, by pi, and a large one draws pi itself.

    Differs from the paper: there the concentrations are elu(beta) + 1, whose sum is free and is
    held by a penalty; here tau sets the sum, so that the mean is pi and alpha means what it means
    to the other estimators.
    """
    return all_terms(dirichlet_weights(alpha_LC, noise_LC, tau))


ESTIMATORS: dict[str, Callable[[Tensor, Tensor, Tau], Mix]] = {
    "soft": soft,
    "straight_through": straight_through,
    "single_path": single_path,
    "two_path": two_path,
    "dirichlet": dirichlet,
    "spos": spos,
}
# Those whose forward pass takes one candidate, by how many they compute (None: all).
HARD: dict[str, int | None] = {
    "straight_through": None,
    "single_path": 1,
    "two_path": 2,
    "spos": 1,
}


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
