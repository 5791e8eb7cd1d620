"""Layouts drawn from pi, and of them the best by the SuperNet's weights."""

import numpy as np

from nas.derivation.base import Derived, Request
from nas.derivation.networks import Choice
from nas.derivation.scored import Scores
from nas.derivation.searched import Array, read_searches


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
