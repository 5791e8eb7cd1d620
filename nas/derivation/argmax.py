"""The likeliest candidate of every slot, from the mean alpha at the end of the search."""

from nas.derivation.base import Derived, Request
from nas.derivation.searched import read_searches


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
    searched = read_searches(request, "argmax")
    return Derived(
        layout=tuple(request.candidates[k] for k in searched.likeliest_L),
        evidence=searched.evidence(f"argmax of {searched.words}"),
    )
