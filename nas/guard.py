"""What is wrong with a search, as far as pi alone can tell: collapse, drift, standstill.

N steps in which alpha moved   L slots   C candidates
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Where a warning begins; what they are beside real searches and placebos: docs/experiments.md.
MOST_NOTHING = 0.6
MOST_OF_ONE = 0.95
LEAST_MARGIN = 0.1
BLOCKS = 20
LEAST_DIRECTED = 2.5


@dataclass(frozen=True)
class Watch:
    """What is watched of alpha's path.

    Attributes:
        nothing_share: mean pi of the candidates that add nothing (identity), over the slots.
        one_share: the largest mean pi of a candidate over the slots.
        one_label: that candidate.
        mean_margin: pi of the likeliest less that of the second, mean over the slots.
        directed_L: per slot, how directed alpha's path was: the t statistic of the increments of
            the likeliest candidate's lead over `BLOCKS` parts of equal learning rate. Without any
            gradient but noise it is about 1; nan where there are fewer steps than parts.
    """

    nothing_share: float
    one_share: float
    one_label: str
    mean_margin: float
    directed_L: NDArray[np.float64]


def watch(
    alpha_NLC: NDArray[np.float32],
    rate_M: Sequence[float],
    labels: Sequence[str],
    nothing: Sequence[bool],
) -> Watch:
    """What alpha's path shows.

    Args:
        alpha_NLC: alpha before its first step and after each.
        rate_M: the learning rate of each of these M = N - 1 steps.
        labels: of the candidates.
        nothing: which of them add nothing.
    """
    path_NLC = alpha_NLC.astype(np.float64)
    pi_LC = _softmax(path_NLC[-1])
    mean_C = pi_LC.mean(0)
    ordered = np.sort(pi_LC, axis=-1)
    margin = float((ordered[:, -1] - ordered[:, -2]).mean()) if pi_LC.shape[1] > 1 else 1.0
    top = int(mean_C.argmax())
    return Watch(
        nothing_share=float(mean_C[list(nothing)].sum()),
        one_share=float(mean_C[top]),
        one_label=labels[top],
        mean_margin=margin,
        directed_L=directedness(path_NLC, rate_M),
    )


def directedness(alpha_NLC: NDArray[np.float64], rate_M: Sequence[float]) -> NDArray[np.float64]:
    """Per slot the t statistic of the lead's increments over parts of equal learning rate.

    The lead is the last step's likeliest candidate's alpha less the mean of the others'. A random
    walk's increments have mean 0; choosing the largest at the end makes its sign positive, and its
    size a little larger than a t variate's.
    """
    steps, slots, count = alpha_NLC.shape
    if steps <= BLOCKS or count == 1:
        return np.full(slots, np.nan)
    top_L = alpha_NLC[-1].argmax(-1)
    own_NL = np.take_along_axis(alpha_NLC, top_L[None, :, None], axis=2)[..., 0]
    lead_NL = own_NL - (alpha_NLC.sum(-1) - own_NL) / (count - 1)
    travel_N = np.concatenate([[0.0], np.cumsum(rate_M)])
    at = np.searchsorted(travel_N, np.linspace(0, travel_N[-1], BLOCKS + 1)[:-1])
    at = np.append(at, steps - 1)
    gain_BL = np.diff(lead_NL[at], axis=0)
    spread_L = gain_BL.std(axis=0, ddof=1)
    mean_L = gain_BL.mean(axis=0)
    still_L = spread_L == 0
    t_L = mean_L / np.where(still_L, 1.0, spread_L) * math.sqrt(BLOCKS)
    return np.where(still_L, np.sign(mean_L) * np.inf, t_L) if still_L.any() else t_L


def warnings_of(found: Watch) -> list[str]:
    """A line with numbers and a remedy for each thing that is wrong; the first says the most."""
    lines = []
    if found.nothing_share > MOST_NOTHING:
        lines.append(
            f"warning: candidates that add nothing have {found.nothing_share:.0%} of pi (above "
            f"{MOST_NOTHING:.0%}): the search collapses to identity. Take identity out of "
            "model.candidates, or let the weights train longer first (search.alpha.freeze)"
        )
    elif found.one_share > MOST_OF_ONE:
        lines.append(
            f"warning: {found.one_label} has {found.one_share:.0%} of pi in the mean of all slots: "
            "every slot chose the same. Compare with a rule (derive.py --method interleaved) "
            "before you believe it, and try a lower search.alpha.lr"
        )
    if found.mean_margin < LEAST_MARGIN:
        lines.append(
            f"warning: pi hardly moved: the mean margin is {found.mean_margin:.3f} (below "
            f"{LEAST_MARGIN}). Search for more steps, or raise search.alpha.lr"
        )
        return lines
    directed_L = found.directed_L[~np.isnan(found.directed_L)]
    weak = int((directed_L < LEAST_DIRECTED).sum())
    if len(directed_L) and weak > len(directed_L) / 2:
        lines.append(
            f"warning: in {weak} of {len(directed_L)} slots alpha moved as noise would move it "
            f"(median t of its increments {np.median(directed_L):.1f}, below {LEAST_DIRECTED}): "
            "the choice there says little. Compare with other seeds and a placebo "
            "(docs/experiments.md)"
        )
    return lines


def _softmax(alpha_LC: NDArray[np.float64]) -> NDArray[np.float64]:
    shifted = np.exp(alpha_LC - alpha_LC.max(-1, keepdims=True))
    found: NDArray[np.float64] = shifted / shifted.sum(-1, keepdims=True)
    return found
