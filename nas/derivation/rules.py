"""Layouts without a search: interleaved, PAR, sandwich, a random one, one written down."""

from collections.abc import Sequence

import numpy as np

from model import Candidate, Evidence, parse_layout
from nas.config import DeriveConfig
from nas.derivation.base import Choice, Derived, NoLayout, Request

# The best layout of LayoutBench, docs/experiments.md.
_SANDWICH_ENDS = 2
_TRIES = 20_000


def _by_rule(request: Request, method: str, attention_slots: set[int]) -> Derived:
    attention = _first_of_kind(request.candidates, "attention", method)
    dense = _first_of_kind(request.candidates, "dense", method)
    layout = tuple(attention if slot in attention_slots else dense for slot in range(request.slots))
    return Derived(layout=layout, evidence=Evidence(method=method))


def _first_of_kind(candidates: Sequence[Candidate], kind: str, method: str) -> Candidate:
    for candidate in candidates:
        if candidate.kind == kind:
            return candidate
    labels = ", ".join(candidate.label for candidate in candidates)
    raise ValueError(f"{method}: needs a candidate of kind {kind}; model.candidates has {labels}")


def interleaved(request: Request) -> Derived:
    """Attention and dense in turn, attention first: the Transformer-XL itself (Dai et al. 2019)."""
    return _by_rule(request, "interleaved", set(range(0, request.slots, 2)))


def par(request: Request) -> Derived:
    """One attention slot per p slots, spread over the first two thirds (Mandava et al. 2020)."""
    count = max(1, round(request.slots / request.config.p))
    reach = max(count, 2 * request.slots // 3)
    slots = {slot * reach // count for slot in range(count)}
    return _by_rule(request, f"par, p = {request.config.p}", slots)


def sandwich(request: Request) -> Derived:
    """s^k (s f)^(n - k) f^k over 2n slots (Press et al. 2020, section 5).

    With an odd number of slots the middle ends with attention too, so that it costs what
    `interleaved` costs.
    """
    slots, k = request.slots, sandwich_ends(request.config, request.slots)
    if 2 * k > slots:
        raise ValueError(
            f"sandwich: derive.k {k} must be at most half of {slots} slots; leave it out"
        )
    middle = set(range(k, slots - k, 2))
    return _by_rule(request, f"sandwich, k = {k}", set(range(k)) | middle)


def sandwich_ends(config: DeriveConfig, slots: int) -> int:
    """How many slots of a sandwich are alike at each end."""
    return min(_SANDWICH_ENDS, slots // 2) if config.k is None else config.k


def explicit(request: Request) -> Derived:
    """The layout of derive.layout, as letters or labels."""
    assert request.config.layout is not None
    layout = parse_layout(request.config.layout, request.candidates)
    if len(layout) != request.slots:
        raise ValueError(
            f"layout: {request.config.layout!r} has {len(layout)} slots, model.slots is "
            f"{request.slots}; give as many, or --set model.slots={len(layout)}"
        )
    return Derived(layout=layout, evidence=Evidence(method="layout"))


class NoOtherNetwork(ValueError):
    """Every network of the cost is taken."""


def random_layout(request: Request) -> Derived:
    """Every slot an independent uniform draw; the first that keeps the limits and costs as asked.

    Draws whose network is among `request.taken` are passed over. Where no draw serves and the
    layouts can be listed, those that serve are, and one of them is drawn. Where all of those are
    taken, NoOtherNetwork.
    """
    near, networks = request.near, request.networks
    generator = np.random.default_rng(request.config.seed)
    draws = (
        tuple(generator.integers(len(request.candidates), size=request.slots).tolist())
        for _ in range(_TRIES)
    )

    def serves(choice: Choice) -> bool:
        if near is not None and not near.holds(networks.layout(choice)):
            return False
        return request.allowed(choice) and networks.of(choice) not in request.taken

    choice = next(filter(serves, draws), None)
    if choice is None and networks.listed(request.slots):
        serving = [*networks.first_forms(filter(serves, networks.layouts(request.slots)))]
        choice = serving[generator.integers(len(serving))] if serving else None
    if choice is None:
        raise _nothing_serves(request)
    budget = " within the budget" if request.limits else ""
    budget += "" if near is None else f", {near.words} {near.value:.6g}"
    evidence = Evidence(method=f"random, seed {request.config.seed}{budget}")
    return Derived(layout=networks.layout(choice), evidence=evidence)


def _nothing_serves(request: Request) -> ValueError:
    near = request.near
    asked = "" if near is None else f" of {near.words} {near.value:.6g} within {near.tolerance:.0%}"
    asked += " within derive.budget" if request.limits else ""
    listed = request.networks.listed(request.slots)
    none = "there is no" if listed else f"{_TRIES:,} draws gave no"
    if request.taken:
        return NoOtherNetwork(f"random: {none} other network{asked}")
    return NoLayout(f"random: {none} layout{asked}; give a larger budget")
