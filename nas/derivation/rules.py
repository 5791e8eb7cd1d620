"""Layouts by rule: interleaved, PAR, sandwich."""

from model import Evidence
from nas.derivation.base import Derived, Request, first_of_kind


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

    Raises:
        ValueError: the number of slots is odd, or k is larger than half of it.
    """
    half, k = request.slots // 2, request.config.k
    if request.slots % 2:
        raise ValueError(
            f"sandwich: needs an even number of slots, found {request.slots}; take another rule, "
            "or another model.slots"
        )
    if k > half:
        raise ValueError(f"sandwich: derive.k {k} must be at most half of {request.slots} slots")
    middle = {k + 2 * pair for pair in range(half - k)}
    return _by_rule(request, f"sandwich, k = {k}", set(range(k)) | middle)
