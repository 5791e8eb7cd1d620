"""What one or several finished searches found: pi of the mean alpha of their last steps.

R searches, L slots, C candidates.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from model import Agreement, Evidence
from nas.derivation.base import Request
from nas.derivation.config import DeriveConfig
from nas.search.trajectory import load_pi
from nas.statistics.agreement import agreement
from utils.pi import log_softmax, margins

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Searched:
    """What the searches of a request found: the mean alpha of each.

    `averaged` says over which steps, for the method's text; `learned`, whether alpha moved at all.
    """

    alpha_RLC: Array
    averaged: str
    labels: tuple[str, ...]
    seeds: tuple[int, ...]
    learned: bool

    @cached_property
    def log_pi_LC(self) -> Array:
        """Logarithm of pi, of the searches' mean alpha."""
        return log_softmax(self.alpha_RLC.mean(axis=0))

    @property
    def pi_LC(self) -> Array:
        """The probabilities."""
        return np.exp(self.log_pi_LC)

    @property
    def pi_RLC(self) -> Array:
        """The probabilities of each search by itself."""
        return np.exp(log_softmax(self.alpha_RLC))

    def evidence(self, method: str) -> Evidence:
        """Evidence of a choice: pi, its margins, and how far several searches agree."""
        return Evidence(
            method=method,
            pi=tuple(
                {
                    label: round(float(value), 6)
                    for label, value in zip(self.labels, pi_C, strict=True)
                }
                for pi_C in self.pi_LC
            ),
            margins=tuple(round(float(margin), 6) for margin in margins(self.pi_LC)),
            agreement=self.agreement(),
        )

    def agreement(self) -> Agreement | None:
        """How far the searches' likeliest candidates agree; None for one, or where none learned."""
        if len(self.seeds) == 1 or not self.learned:
            return None
        return agreement(self.seeds, self.alpha_RLC.argmax(axis=2))


# What has nothing to go by where alpha did not learn: the order by pi is then arbitrary.
NEED_PI = frozenset({"argmax", "top_k"})


def check_method(config: DeriveConfig, *, alpha_learned: bool) -> None:
    """Raise ValueError where a method cannot serve whatever a search finds."""
    if config.method in NEED_PI and not alpha_learned:
        raise ValueError(
            f"{config.method}: with search.estimator spos alpha does not move and pi stays "
            "uniform; take derive.method sampled, beam or evolution, which score layouts with the "
            "trained SuperNet, or let alpha learn (search.alpha.estimator: straight_through)"
        )


def read_searches(request: Request, method: str) -> Searched:
    """Average alpha over the last part of the steps of each search.

    ValueError where there is no finished search, or one had other candidates, slots or steps.
    """
    if not request.trajectories:
        raise ValueError(f"{method}: needs a finished search; run search.py first")
    means = [_mean_alpha(request, path) for path in request.trajectories.values()]
    last, steps = means[0][1:]
    seeds = tuple(request.trajectories)
    of = "" if len(seeds) == 1 else f" of {len(seeds)} searches"
    return Searched(
        alpha_RLC=np.stack([alpha_LC for alpha_LC, _, _ in means]),
        averaged=f"the mean alpha of the last {last} of {steps} steps{of}",
        labels=tuple(candidate.label for candidate in request.candidates),
        seeds=seeds,
        learned=request.alpha_learned,
    )


def _mean_alpha(request: Request, path: Path) -> tuple[Array, int, int]:
    """A search's mean alpha, the number of steps that it is taken over, and that of all steps."""
    arrays = load_pi(path)
    labels = [candidate.label for candidate in request.candidates]
    alpha_NLC = arrays["alpha"]
    searched = [str(label) for label in arrays["labels"]]
    if searched != labels or alpha_NLC.shape[1] != request.slots:
        raise ValueError(
            f"{path}: {alpha_NLC.shape[1]} slots of {searched}, the experiment has "
            f"{request.slots} of {labels}; use the search's own experiment"
        )
    if len(alpha_NLC) < request.search_steps:
        raise ValueError(
            f"{path}: the search stands at step {len(alpha_NLC)} of "
            f"{request.search_steps}; start search.py again to finish it"
        )
    last = math.ceil(request.config.average * len(alpha_NLC))
    return alpha_NLC[-last:].astype(np.float64).mean(axis=0), last, len(alpha_NLC)
