"""From log-probabilities of the next id to a drawn one; pure functions of what they are given.

B streams   V vocabulary
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Sampling:
    """How the next id is drawn; the options apply in this order.

    Attributes:
        temperature: log-probabilities are divided by it; 0: always the likeliest id.
        top_k: so many of the likeliest ids are kept; None: all.
        top_p: the likeliest ids that together have this probability are kept; None: all.
        min_p: ids are kept whose probability is this part of the likeliest's; None: all.

    Raises:
        ValueError: a value is out of bounds.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:
            raise ValueError(f"temperature: must be a number from 0, found {self.temperature}")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k: must be from 1, found {self.top_k}; leave it out to keep all")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueError(f"top_p: must be above 0 and at most 1, found {self.top_p}")
        if self.min_p is not None and not 0 <= self.min_p <= 1:
            raise ValueError(f"min_p: must be from 0 to 1, found {self.min_p}")


GREEDY = Sampling(temperature=0.0)


def keep_top_k(logit_BV: Tensor, k: int) -> Tensor:
    """-inf for all but the k largest logits (Fan et al. 2018, arXiv 1805.04833, section 5.1).

    Of equal ones the lower id is kept, so that k remain.
    """
    order_BV = logit_BV.sort(dim=-1, descending=True, stable=True).indices
    return logit_BV.scatter(-1, order_BV[..., k:], -math.inf)


def keep_top_p(logit_BV: Tensor, p: float) -> Tensor:
    """-inf outside the nucleus (Holtzman et al. 2019, arXiv 1904.09751, section 3.1).

    That is the fewest ids, the likeliest first, whose probabilities add up to p at least.
    """
    logit, order_BV = logit_BV.sort(dim=-1, descending=True, stable=True)
    # Before each id; a difference of sums could leave out the first one.
    before_BV = F.pad(logit.softmax(-1).cumsum(-1)[..., :-1], (1, 0))
    out_BV = torch.zeros_like(before_BV, dtype=torch.bool).scatter(-1, order_BV, before_BV >= p)
    return logit_BV.masked_fill(out_BV, -math.inf)


def keep_min_p(logit_BV: Tensor, share: float) -> Tensor:
    """-inf where an id has less than this part of the likeliest's probability.

    Nguyen et al. 2024, arXiv 2407.01082, section 3.
    """
    if not share:
        return logit_BV
    least_B1 = logit_BV.amax(-1, keepdim=True) + math.log(share)
    return logit_BV.masked_fill(logit_BV < least_B1, -math.inf)


def probabilities(log_prob_BV: Tensor, sampling: Sampling) -> Tensor:
    """What ids are drawn with, in float64; the temperature is above 0."""
    wide_BV = log_prob_BV.double()
    # The largest becomes 0: a temperature near 0 leaves it alone instead of nothing.
    logit_BV = (wide_BV - wide_BV.amax(-1, keepdim=True)) / sampling.temperature
    if sampling.top_k is not None:
        logit_BV = keep_top_k(logit_BV, sampling.top_k)
    if sampling.top_p is not None and sampling.top_p < 1:
        logit_BV = keep_top_p(logit_BV, sampling.top_p)
    if sampling.min_p is not None:
        logit_BV = keep_min_p(logit_BV, sampling.min_p)
    return logit_BV.softmax(-1)


def draw(
    log_prob_BV: Tensor, sampling: Sampling, generators: Sequence[torch.Generator] = ()
) -> Tensor:
    """The next id of each stream, on the CPU; stream b takes one number of generator b.

    So a stream's ids do not depend on those beside it. Without temperature no number is drawn, and
    of equal ids the lowest is taken.

    Raises:
        ValueError: the model gives no number for some id.
    """
    if log_prob_BV.isnan().any():
        raise ValueError("the model gives nan for the next token; its weights are of no use")
    if not sampling.temperature:
        return log_prob_BV.argmax(-1).cpu()
    assert len(generators) == len(log_prob_BV), (len(generators), len(log_prob_BV))
    uniform = [torch.rand(1, generator=each, dtype=torch.float64) for each in generators]
    cumulated_BV = probabilities(log_prob_BV, sampling).cumsum(-1).cpu()
    # Below the last sum whatever is rounded, since a number is at most 1 - 2^-53.
    place_B1 = torch.stack(uniform) * cumulated_BV[:, -1:]
    return torch.searchsorted(cumulated_BV, place_B1, right=True)[:, 0]
