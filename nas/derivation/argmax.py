"""The likeliest candidate of every slot, from the mean alpha at the end of the search."""

import math

import numpy as np

from model import Evidence
from nas.derivation.base import Derived, Request
from nas.trajectory import load_pi, margins, softmax


def argmax(request: Request) -> Derived:
    """Average alpha over the last part of the steps and take each slot's largest.

    Raises:
        ValueError: there is no finished search, it had other candidates or slots, or pi is
            uniform because alpha never moved.
    """
    if not request.alpha_learned:
        raise ValueError(
            "argmax: with search.estimator spos alpha does not move and pi stays uniform; take a "
            "derive.method that scores layouts with the trained SuperNet (top_k, beam, evolution), "
            "or let alpha learn (search.alpha.estimator: straight_through)"
        )
    if request.trajectory is None:
        raise ValueError("argmax: needs a finished search; run search.py first")
    arrays = load_pi(request.trajectory)
    labels = [candidate.label for candidate in request.candidates]
    alpha_NLC = arrays["alpha"]
    found = [str(label) for label in arrays["labels"]]
    if found != labels or alpha_NLC.shape[1] != request.slots:
        raise ValueError(
            f"{request.trajectory}: {alpha_NLC.shape[1]} slots of {found}, the experiment has "
            f"{request.slots} of {labels}; use the search's own experiment"
        )
    if len(alpha_NLC) < request.search_steps:
        raise ValueError(
            f"{request.trajectory}: the search stands at step {len(alpha_NLC)} of "
            f"{request.search_steps}; start search.py again to finish it"
        )
    last = math.ceil(request.config.average * len(alpha_NLC))
    pi_LC = softmax(alpha_NLC[-last:].astype(np.float64).mean(axis=0))
    chosen_L = pi_LC.argmax(axis=1)
    return Derived(
        layout=tuple(request.candidates[k] for k in chosen_L),
        evidence=Evidence(
            method=f"argmax of the mean alpha of the last {last} of {len(alpha_NLC)} steps",
            pi=tuple(
                {label: round(float(value), 6) for label, value in zip(labels, pi_C, strict=True)}
                for pi_C in pi_LC
            ),
            margins=tuple(round(float(margin), 6) for margin in margins(pi_LC)),
        ),
    )
