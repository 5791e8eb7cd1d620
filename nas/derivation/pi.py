"""Layouts that pi names: the likeliest candidate of every slot, the K likeliest networks, draws."""

import numpy as np

from nas.derivation.base import Choice, Derived, Request
from nas.derivation.scored import Scores
from nas.derivation.searched import Array, check_learned, read_searches


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


def top_k(request: Request) -> Derived:
    """Score the `derive.top` networks of largest product of pi within derive.flops; take the best.

    A network is as likely as the likeliest of its layouts, which is the one that is scored.

    Raises:
        ValueError: there is no finished search, its alpha did not learn, its weights are not
            there, or nothing that is likely costs at most derive.flops.
    """
    check_learned(request, "top_k")
    scores = Scores(request, read_searches(request, "top_k"), request.config.top, "top_k")
    for choice in scores.likeliest(request.config.top):
        scores.add(choice)
    return scores.derived("the likeliest by")


def sampled(request: Request) -> Derived:
    """Score the different networks of `derive.samples` draws that fit derive.flops; take the best.

    Raises:
        ValueError: there is no finished search, its weights are not there, or no draw costs at
            most derive.flops.
    """
    config = request.config
    searched = read_searches(request, "sampled")
    scores = Scores(request, searched, config.samples, "sampled")
    for choice in draws(searched.pi_LC, config.samples, config.seed):
        if scores.allowed(choice):
            scores.add(choice)
    if not scores.found:
        raise ValueError(
            f"sampled: none of {config.samples} draws costs at most derive.flops "
            f"{config.flops:.4g}; give a larger one, or more derive.samples"
        )
    return scores.derived(f"{config.samples} draws of seed {config.seed} from pi of")


def draws(pi_LC: Array, count: int, seed: int) -> list[Choice]:
    """Layouts, each slot an independent draw from its pi; the same one may come twice."""
    return draw_from(pi_LC, count, np.random.default_rng(seed))


def draw_from(pi_LC: Array, count: int, generator: np.random.Generator) -> list[Choice]:
    """As `draws`, from a generator that goes on."""
    # The last end is 1 but for rounding, and above every draw.
    ends_LC = np.cumsum(pi_LC, axis=1)[:, :-1]
    uniform_NL = generator.random((count, len(pi_LC)))
    choice_NL = (uniform_NL[:, :, None] >= ends_LC).sum(axis=2)
    return [tuple(choice_L) for choice_L in choice_NL.tolist()]
