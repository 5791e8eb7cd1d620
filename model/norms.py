"""The norms of slots and of the softmax's input.

D d_model
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_EPS = 1e-5


class ScaleNorm(nn.Module):
    """g x / |x| with one trained number g (Nguyen and Salazar 2019, arXiv 1910.05895, Eq. 5).

    g begins as sqrt(D), so that a channel begins with a mean square of 1.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((), d_model**0.5))

    def forward(self, x_D: Tensor) -> Tensor:
        """The rows at length g."""
        return self.weight * F.normalize(x_D, dim=-1, eps=_EPS)


class ReZero(nn.Module):
    """The factor of a slot's block, 0 at first (Bachlechner et al. 2020, arXiv 2003.04887)."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))


def _rms(d_model: int) -> nn.Module:
    # Zhang and Sennrich 2019, arXiv 1910.07467, Eq. 4.
    return nn.RMSNorm(d_model, eps=_EPS)


# By its name in `model.norm`.
NORMS: dict[str, Callable[[int], nn.Module]] = {
    "layer": nn.LayerNorm,
    "rms": _rms,
    "scale": ScaleNorm,
}
