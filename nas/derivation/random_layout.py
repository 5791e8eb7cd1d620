"""A random layout, free or of a given cost."""

from collections.abc import Iterator

import numpy as np

from model import Evidence
from nas.derivation.base import Derived, Request
from nas.derivation.networks import Choice

TOLERANCE = 0.05
_TRIES = 20_000


class NoOtherNetwork(ValueError):
    """Every network of the cost is taken."""


def random_layout(request: Request) -> Derived:
    """Every slot an independent uniform draw; with a budget, the first that costs as much.

    Draws whose network is among `request.taken` are passed over. Where no draw serves and the
    layouts can be listed, those that serve are, and one of them is drawn.

    Raises:
        ValueError: no layout within 5% of the budget was drawn.
        NoOtherNetwork: nor was one that is not taken.
    """
    budget, networks = request.config.flops, request.networks
    generator = np.random.default_rng(request.config.seed)
    costs: list[float] = []

    def serves(choice: Choice) -> bool:
        if budget is not None:
            costs.append(request.flops_per_token(networks.layout(choice)))
            if abs(costs[-1] - budget) > TOLERANCE * budget:
                return False
        return networks.of(choice) not in request.taken

    choice = next(filter(serves, _draws(request, generator)), None)
    if choice is None and networks.listed(request.slots):
        serving = [*networks.first_forms(filter(serves, networks.layouts(request.slots)))]
        choice = serving[generator.integers(len(serving))] if serving else None
    if choice is None:
        raise _nothing(request, costs)
    cost = "" if budget is None else f", {budget:.6g} FLOPs per token"
    evidence = Evidence(method=f"random, seed {request.config.seed}{cost}")
    return Derived(layout=networks.layout(choice), evidence=evidence)


def _draws(request: Request, generator: np.random.Generator) -> Iterator[Choice]:
    for _ in range(_TRIES):
        yield tuple(generator.integers(len(request.candidates), size=request.slots).tolist())


def _nothing(request: Request, costs: list[float]) -> ValueError:
    budget, cost = request.config.flops, ""
    if budget is not None:
        cost = f" that costs within {TOLERANCE:.0%} of {budget:.6g} FLOPs per token"
    listed = request.networks.listed(request.slots)
    none = "there is no" if listed else f"{_TRIES:,} draws gave no"
    if request.taken:
        return NoOtherNetwork(f"random: {none} other network{cost}")
    return ValueError(
        f"random: {none} layout{cost} (derive.flops); they cost from {min(costs):.4g} to "
        f"{max(costs):.4g}; give one between"
    )
