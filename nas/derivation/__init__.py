"""From a search, or from a rule, to a fixed layout."""

from collections.abc import Callable, Sequence

from model import Candidate
from nas.derivation.base import Derived, Request
from nas.derivation.finals import finals
from nas.derivation.from_search import argmax, beam, evolution, sampled, top_k
from nas.derivation.predictor import predictor
from nas.derivation.rules import (
    explicit,
    interleaved,
    missing_kinds,
    par,
    random_layout,
    sandwich,
)

Method = Callable[[Request], Derived]
# From a search.
SEARCHED: dict[str, Method] = {
    "argmax": argmax,
    "top_k": top_k,
    "sampled": sampled,
    "beam": beam,
    "evolution": evolution,
}
# Without one.
RULES: dict[str, Method] = {
    "interleaved": interleaved,
    "par": par,
    "sandwich": sandwich,
    "random": random_layout,
    "layout": explicit,
}
# Those that place attention and dense blocks.
PLACING = tuple(rule for rule in RULES if rule not in ("random", "layout"))
# By training layouts, with or without a search.
TRAINED: dict[str, Method] = {"predictor": predictor, "finals": finals}
DERIVATIONS = SEARCHED | TRAINED | RULES
# Those whose answers depend on derive.seed.
SEEDED = frozenset({"random", "sampled", "evolution", *TRAINED})


def reference_remedy(candidates: Sequence[Candidate]) -> str:
    """What may stand in the place of a reference that is no layout."""
    rules = "" if missing_kinds(candidates) else f", or one of {', '.join(PLACING)}"
    return f"give a layout in letters{rules}"
