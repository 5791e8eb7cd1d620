"""The likeliest candidate of every slot, from the mean alpha at the end of the search."""

from nas.derivation.base import Derived, Request
from nas.derivation.searched import check_learned, read_searches


def argmax(request: Request) -> Derived:
    """Average alpha over the last part of the steps and take each slot's largest.

    Raises:
        ValueError: there is no finished search, it had other candidates or slots, pi is uniform
            because alpha never moved, or there is a budget, which argmax cannot keep.
    """
    check_learned(request, "argmax")
    if request.config.flops is not None:
        raise ValueError(
            f"argmax: cannot keep derive.flops {request.config.flops:.4g}, for it takes each slot "
            "by itself; take derive.method top_k (or sampled, beam, evolution), or leave "
            "derive.flops out"
        )
    searched = read_searches(request, "argmax")
    return Derived(
        layout=tuple(request.candidates[k] for k in searched.likeliest_L),
        evidence=searched.evidence(f"argmax of {searched.words}"),
    )
