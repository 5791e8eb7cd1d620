"""What is wrong with a search, as far as pi alone can tell: collapse, drift, standstill.

N steps in which alpha moved   L slots   C candidates
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nas.search.plan import MOST_ALPHA_LR, SearchPlan
from utils.pi import margins, softmax

# Where a warning begins. How often directed searches and placebos are warned of with these:
# benchmarks/records/drift_warning.md, by benchmarks/guard_rates.py.
MOST_NOTHING = 0.6
COST_REMEDY = (
    "Costs favour it whatever it predicts: bound its share (for example "
    "search.cost.most_nothing=0.25), or give a higher search.cost.target"
)
MOST_OF_ONE = 0.95
LEAST_MARGIN = 0.1
LEAST_DIRECTED = 2.5
# A slot is settled where its margin stays above this; what comes after says nothing of direction.
SETTLED = 0.9
# Parts of a slot's path, and how many steps of the largest rate one has at least: Adam's
# momentum makes neighbouring steps alike, so shorter parts would look directed.
MOST_PARTS, LEAST_PARTS = 20, 8
LEAST_STEPS = 4


@dataclass(frozen=True)
class Diagnostics:
    """What pi alone shows of a search; shares of pi are means over the slots.

    Attributes:
        nothing_share: of the candidates that add nothing (identity).
        one_share: the largest of a single candidate, which is `one_label`.
        mean_margin: pi of the likeliest less that of the second.
        directed_L: see `directedness`.
    """

    nothing_share: float
    one_share: float
    one_label: str
    mean_margin: float
    directed_L: NDArray[np.float64]


def diagnose_search(
    alpha_NLC: NDArray[np.float32],
    rate_M: Sequence[float],
    labels: Sequence[str],
    nothing: Sequence[bool],
) -> Diagnostics:
    """Measure collapse, margins and direction of the path that `alpha_path` gives.

    `nothing` says which of the candidates add nothing.
    """
    path_NLC = alpha_NLC.astype(np.float64)
    pi_LC = softmax(path_NLC[-1])
    mean_C = pi_LC.mean(0)
    top = int(mean_C.argmax())
    return Diagnostics(
        nothing_share=float(mean_C[list(nothing)].sum()),
        one_share=float(mean_C[top]),
        one_label=labels[top],
        mean_margin=float(margins(pi_LC).mean()),
        directed_L=directedness(path_NLC, rate_M),
    )


def alpha_path(alpha_NLC: NDArray[Any], plan: SearchPlan) -> tuple[NDArray[Any], list[float]]:
    """Alpha before its first step and after each, and the learning rates of these N - 1 steps.

    From alpha after each step of the search; a rate is 0 where alpha was not due.
    """
    start_1LC = np.zeros_like(alpha_NLC[:1])
    steps = range(plan.alpha_start, plan.steps)
    rate_M = [plan.alpha_lr(step) * plan.alpha_due(step) for step in steps]
    return np.concatenate([start_1LC, alpha_NLC[plan.alpha_start :]]), rate_M


def directedness(alpha_NLC: NDArray[np.float64], rate_M: Sequence[float]) -> NDArray[np.float64]:
    """Per slot the t statistic of the lead's increments over parts of equal learning rate.

    The lead is the last step's likeliest candidate's alpha less the mean of the others'. A random
    walk's increments have mean 0; choosing the largest at the end makes its sign positive, and its
    size a little larger than a t variate's: about 1 without any gradient but noise. Steps after
    the slot settled are left out: pi is near 1 there, the gradient near 0, and standing still would
    look like having no direction. nan where there are too few steps.
    """
    rates_M = np.asarray(rate_M, dtype=np.float64)
    moved_M = rates_M > 0
    path_NLC = alpha_NLC[np.concatenate([[True], moved_M])]
    t_L = np.full(path_NLC.shape[1], np.nan)
    if path_NLC.shape[2] > 1:
        for slot in range(len(t_L)):
            t_L[slot] = _directed(path_NLC[:, slot], rates_M[moved_M])
    return t_L


def _directed(alpha_NC: NDArray[np.float64], rate_M: NDArray[np.float64]) -> float:
    top = int(alpha_NC[-1].argmax())
    end = _settled(softmax(alpha_NC), top)
    if end == 0:
        return math.nan
    travel_N = np.concatenate([[0.0], rate_M[:end].cumsum()])
    parts = min(MOST_PARTS, int(travel_N[-1] / (rate_M[:end].max() * LEAST_STEPS)))
    if parts < LEAST_PARTS:
        return math.nan
    lead_N = alpha_NC[:, top] - np.delete(alpha_NC, top, axis=1).mean(1)
    at = np.searchsorted(travel_N, np.linspace(0, travel_N[-1], parts + 1)[:-1])
    gain_P = np.diff(lead_N[np.append(at, end)])
    mean, spread = float(gain_P.mean()), float(gain_P.std(ddof=1))
    if spread == 0:
        return math.copysign(math.inf, mean) if mean else 0.0
    return mean / spread * math.sqrt(parts)


def _settled(pi_NC: NDArray[np.float64], top: int) -> int:
    """The first row from which on the margin stays above SETTLED; without one the last row."""
    margin_N = pi_NC[:, top] - np.delete(pi_NC, top, axis=1).max(1)
    below = np.flatnonzero(margin_N <= SETTLED)
    return min(int(below[-1]) + 1, len(pi_NC) - 1) if len(below) else 0


def warnings_of(shown: Diagnostics, plan: SearchPlan | None = None) -> list[str]:
    """A line with numbers and a remedy for each thing that is wrong; the first says the most.

    Without a plan the learning rates are taken for those of `auto`.
    """
    lines = []
    if shown.nothing_share > MOST_NOTHING:
        remedy = (
            "Take identity out of model.candidates, or let the weights train longer first "
            "(search.alpha.warmup_fraction)"
        )
        if plan is not None and plan.config.cost.target is not None:
            remedy = COST_REMEDY
        lines.append(
            f"warning: identity has {shown.nothing_share:.0%} of pi (above {MOST_NOTHING:.0%}): "
            f"the search collapses to blocks that add nothing. {remedy}"
        )
    elif shown.one_share > MOST_OF_ONE:
        lines.append(
            f"warning: {shown.one_label} has {shown.one_share:.0%} of pi, the mean of all blocks: "
            "every block chose the same. Compare with a baseline (derive.py --method interleaved) "
            "before you trust it, and try a lower search.alpha.lr"
        )
    if shown.mean_margin < LEAST_MARGIN:
        remedy = (
            f"Search for more steps; a search.alpha.lr above {MOST_ALPHA_LR} makes pi more "
            "certain but the choice no better"
        )
        if plan is not None and plan.alpha_peak_lr < plan.alpha_auto_lr:
            remedy = (
                f"Raise search.alpha.lr, which is {plan.alpha_peak_lr:.3g}, to "
                f"{plan.alpha_auto_lr:.3g} (the value of auto here)"
            )
        lines.append(
            f"warning: pi hardly moved: its mean margin is {shown.mean_margin:.3f} (below "
            f"{LEAST_MARGIN}). {remedy}"
        )
        return lines
    # A slot that had too few steps to be judged is not weak, but nothing speaks for it either.
    weak_L, unknown_L = shown.directed_L < LEAST_DIRECTED, np.isnan(shown.directed_L)
    if weak_L.sum() > len(weak_L) / 2:
        lines.append(
            f"warning: in {weak_L.sum()} of {len(weak_L)} blocks alpha moved as noise would move "
            f"it (median t statistic {np.median(shown.directed_L[weak_L]):.1f}, below "
            f"{LEAST_DIRECTED}): the choice there says little. Compare with other seeds"
        )
    elif unknown_L.any() and (weak_L | unknown_L).sum() > len(weak_L) / 2:
        lines.append(
            f"warning: in {unknown_L.sum()} of {len(weak_L)} blocks alpha moved for too few steps "
            "to tell a choice from noise. Search for more steps, with a "
            f"search.alpha.lr of at most {MOST_ALPHA_LR}"
        )
    return lines
