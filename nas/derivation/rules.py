"""Layouts by rule: interleaved, PAR, sandwich."""

from model import Evidence
from nas.config import DeriveConfig
from nas.derivation.base import Derived, Request, first_of_kind

# The best layout of LayoutBench, docs/experiments.md.
_SANDWICH_ENDS = 2


def _by_rule(request: Request, method: str, attention_slots: set[int]) -> Derived:
    attention = first_of_kind(request, "attention", method)
    dense = first_of_kind(request, "dense", method)
    layout = tuple(attention if slot in attention_slots else dense for slot in range(request.slots))
    return Derived(layout=layout, evidence=Evidence(method=method))


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

    Raises:
        ValueError: k is larger than half of the slots.
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
