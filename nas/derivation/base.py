"""What a derivation is given and what it answers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from model import Candidate, Evidence
from nas.config import DeriveConfig

Layout = tuple[Candidate, ...]


@dataclass(frozen=True)
class Request:
    """What a derivation may use.

    Attributes:
        config: its options.
        candidates: what a slot may become, every option filled in.
        slots: how many slots the layout has.
        flops_per_token: forward FLOPs per token of a layout.
        trajectory: the search's pi.npz; rules need none.
        search_steps: how many steps a finished search has.
        alpha_learned: whether the search moved alpha; with estimator spos it does not.
    """

    config: DeriveConfig
    candidates: Sequence[Candidate]
    slots: int
    flops_per_token: Callable[[Layout], float]
    trajectory: Path | None = None
    search_steps: int = 0
    alpha_learned: bool = True


@dataclass(frozen=True)
class Derived:
    """A fixed layout and what speaks for it.

    Attributes:
        layout: one candidate per slot.
        evidence: the method, and for a search final pi and margins.
    """

    layout: Layout
    evidence: Evidence


def first_of_kind(request: Request, kind: str, method: str) -> Candidate:
    """The first candidate of a kind.

    Raises:
        ValueError: model.candidates has none.
    """
    for candidate in request.candidates:
        if candidate.kind == kind:
            return candidate
    found = ", ".join(candidate.label for candidate in request.candidates)
    raise ValueError(f"{method}: needs a candidate of kind {kind}; model.candidates has {found}")
