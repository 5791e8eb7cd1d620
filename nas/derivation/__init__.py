"""From a search, or from a rule, to a fixed layout: the methods by name."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from model import Candidate, Layout
    from nas.derivation.base import Derived, Request
    from nas.derivation.config import DeriveConfig

# By method the module here that holds it, imported when it is asked for, and its function.
# From a search:
SEARCHED = {
    "argmax": "from_search.argmax",
    "top_k": "from_search.top_k",
    "sampled": "from_search.sampled",
    "beam": "from_search.beam",
    "evolution": "from_search.evolution",
}
# Without one:
RULES = {
    "interleaved": "rules.interleaved",
    "par": "rules.par",
    "sandwich": "rules.sandwich",
    "random": "rules.random_layout",
    "layout": "rules.explicit",
}
# By training layouts, with or without a search:
TRAINED = {"predictor": "predictor.predictor", "trained": "trained.trained"}
# Of what a trained model has:
OF_MODEL = {"shrink": "shrink.shrink"}
DERIVATIONS = SEARCHED | TRAINED | RULES | OF_MODEL
# Rules that place attention and dense blocks.
PLACING = tuple(rule for rule in RULES if rule not in ("random", "layout"))
# What has nothing to go by where alpha did not learn: the order by pi is then arbitrary.
NEED_PI = frozenset({"argmax", "top_k"})


def method_of(name: str) -> "Callable[[Request], Derived]":
    """A registered method."""
    module, _, function = DERIVATIONS[name].partition(".")
    method: Callable[[Request], Derived] = getattr(
        import_module(f"nas.derivation.{module}"), function
    )
    return method


def missing_kinds(candidates: "Sequence[Candidate]") -> list[str]:
    """The kinds that every rule in PLACING needs and that are not among the candidates."""
    kinds = {candidate.kind for candidate in candidates}
    return [kind for kind in ("attention", "dense") if kind not in kinds]


def reference_remedy(candidates: "Sequence[Candidate]") -> str:
    """What may stand in the place of a reference that is no layout."""
    rules = "" if missing_kinds(candidates) else f", or one of {', '.join(PLACING)}"
    return f"give a layout in letters{rules}"


def named_layout(name: str) -> dict[str, str]:
    """The options of `derive` that choose what a rule's name, or a layout in letters, names."""
    return {"method": name} if name in DERIVATIONS else {"method": "layout", "layout": name}


def reference_layout(request: "Request", key: str = "derive.reference") -> "Layout":
    """The layout whose costs are 1x; ValueError where derive.reference is none."""
    name = request.config.reference_name
    config = request.config.model_copy(update=named_layout(name))
    try:
        if name in DERIVATIONS and name not in PLACING:
            raise ValueError(f"{name} is not a single layout")
        return method_of(config.method)(replace(request, config=config)).layout
    except ValueError as error:
        message = "; ".join(str(error).splitlines())
        raise ValueError(f"{key}: {message}; {reference_remedy(request.candidates)}") from None


def check_method(method: str, *, alpha_learned: bool) -> None:
    """Raise ValueError where a method cannot serve whatever a search finds."""
    if method in NEED_PI and not alpha_learned:
        raise ValueError(
            f"{method}: with search.estimator spos alpha does not move and pi stays "
            "uniform; take derive.method sampled, beam or evolution, which score layouts with the "
            "trained SuperNet, or let alpha learn (search.alpha.estimator: straight_through)"
        )


def context_problem(
    config: "DeriveConfig", candidates: "Sequence[Candidate]", slots: int
) -> str | None:
    """Why no layout has `derive.least_context` blocks that read context; None where some have."""
    from model import reads_context

    reads = any(map(reads_context, candidates))
    if config.method == "layout" or config.least_context <= (slots if reads else 0):
        return None
    why = f"model.n_blocks is {slots}" if reads else "no candidate reads earlier tokens"
    return f"derive.least_context: {config.least_context} blocks of context, but {why}; give less"
