"""What one or several finished searches found: pi of the mean alpha of their last steps.

R searches, L slots, C candidates.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from model import Evidence
from nas.agreement import agreement
from nas.derivation.base import Request
from nas.trajectory import load_pi, margins

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Searched:
    """What the searches of a request found.

    Attributes:
        log_pi_LC: of the mean alpha of all of them.
        choice_RL: the likeliest candidate of each search.
        words: what was averaged, for the method's text.
        labels: of the candidates.
        seeds: of the searches.
    """

    log_pi_LC: Array
    choice_RL: NDArray[np.int64]
    words: str
    labels: tuple[str, ...]
    seeds: tuple[int, ...]

    @property
    def pi_LC(self) -> Array:
        """The probabilities."""
        return np.exp(self.log_pi_LC)

    @property
    def likeliest_L(self) -> tuple[int, ...]:
        """The likeliest candidate of every slot."""
        return tuple(self.log_pi_LC.argmax(axis=1).tolist())

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
            agreement=agreement(self.seeds, self.choice_RL) if len(self.seeds) > 1 else None,
        )


def read_searches(request: Request, method: str) -> Searched:
    """Average alpha over the last part of the steps, and over the searches.

    Raises:
        ValueError: there is no finished search, or one had other candidates, slots or steps.
    """
    if not request.trajectories:
        raise ValueError(f"{method}: needs a finished search; run search.py first")
    found = [_alpha(request, path) for path in request.trajectories.values()]
    last, steps = found[0][1:]
    alpha_RLC = np.stack([alpha_LC for alpha_LC, _, _ in found])
    seeds = tuple(request.trajectories)
    of = "" if len(seeds) == 1 else f" of {len(seeds)} searches"
    return Searched(
        log_pi_LC=_log_softmax(alpha_RLC.mean(axis=0)),
        choice_RL=alpha_RLC.argmax(axis=2),
        words=f"the mean alpha of the last {last} of {steps} steps{of}",
        labels=tuple(candidate.label for candidate in request.candidates),
        seeds=seeds,
    )


def _alpha(request: Request, path: Path) -> tuple[Array, int, int]:
    """A search's mean alpha, over how many steps it is taken, and how many there are."""
    arrays = load_pi(path)
    labels = [candidate.label for candidate in request.candidates]
    alpha_NLC = arrays["alpha"]
    found = [str(label) for label in arrays["labels"]]
    if found != labels or alpha_NLC.shape[1] != request.slots:
        raise ValueError(
            f"{path}: {alpha_NLC.shape[1]} slots of {found}, the experiment has "
            f"{request.slots} of {labels}; use the search's own experiment"
        )
    if len(alpha_NLC) < request.search_steps:
        raise ValueError(
            f"{path}: the search stands at step {len(alpha_NLC)} of "
            f"{request.search_steps}; start search.py again to finish it"
        )
    last = math.ceil(request.config.average * len(alpha_NLC))
    return alpha_NLC[-last:].astype(np.float64).mean(axis=0), last, len(alpha_NLC)


def _log_softmax(alpha_LC: Array) -> Array:
    shifted_LC = alpha_LC - alpha_LC.max(axis=1, keepdims=True)
    return shifted_LC - np.log(np.exp(shifted_LC).sum(axis=1, keepdims=True))
