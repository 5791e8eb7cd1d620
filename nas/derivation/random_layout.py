"""A random layout, free or of a given cost."""

import numpy as np

from model import Evidence
from nas.derivation.base import Derived, Request

TOLERANCE = 0.05
_TRIES = 20_000


def random_layout(request: Request) -> Derived:
    """Every slot an independent uniform draw; with a budget, the first that costs as much.

    Raises:
        ValueError: no layout within 5% of the budget was drawn.
    """
    generator = np.random.default_rng(request.config.seed)
    budget = request.config.flops
    costs = []
    for _ in range(_TRIES):
        draw_L = generator.integers(len(request.candidates), size=request.slots)
        layout = tuple(request.candidates[k] for k in draw_L)
        if budget is None:
            return Derived(
                layout=layout, evidence=Evidence(method=f"random, seed {request.config.seed}")
            )
        method = f"random, seed {request.config.seed}, {budget:.6g} FLOPs per token"
        cost = request.flops_per_token(layout)
        if abs(cost - budget) <= TOLERANCE * budget:
            return Derived(layout=layout, evidence=Evidence(method=method))
        costs.append(cost)
    raise ValueError(
        f"random: none of {_TRIES} layouts costs within {TOLERANCE:.0%} of derive.flops "
        f"{budget:.4g}; they cost from {min(costs):.4g} to {max(costs):.4g}; give one between"
    )
