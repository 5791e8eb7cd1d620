"""From a search, or from a rule, to a fixed layout."""

from collections.abc import Callable, Sequence

from model import Candidate
from nas.derivation.base import (
    Considered,
    Derived,
    Request,
    Train,
    context_problem,
)
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
    written_layout,
)
from nas.derivation.searched import NEED_PI, check_method
from nas.derivation.training import Expected, Length, Trained

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


__all__ = [
    "DERIVATIONS",
    "NEED_PI",
    "PLACING",
    "RULES",
    "SEARCHED",
    "SEEDED",
    "TRAINED",
    "Considered",
    "Derived",
    "Expected",
    "Length",
    "Request",
    "Train",
    "Trained",
    "check_method",
    "context_problem",
    "missing_kinds",
    "reference_remedy",
    "written_layout",
]
