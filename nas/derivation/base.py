"""What a derivation is given and what it answers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from model import Candidate, Evidence, Network
from nas.config import DeriveConfig
from nas.derivation.networks import Networks
from nas.scoring import Score

Layout = tuple[Candidate, ...]


@dataclass(frozen=True)
class Request:
    """What a derivation may use.

    Attributes:
        config: its options.
        candidates: what a slot may become, every option filled in.
        slots: how many slots the layout has.
        flops_per_token: forward FLOPs per token of a layout.
        trajectories: the searches' pi.npz by seed; rules need none.
        search_steps: how many steps a finished search has.
        score: nats of a layout's network by the SuperNet's weights, on the same text for all.
        say: shows a line of progress.
        alpha_learned: whether the search moved alpha; with estimator spos it does not.
        tie_slots: slots so many apart share their weights; None: none do.
        taken: networks that a random layout must not be.
    """

    config: DeriveConfig
    candidates: Sequence[Candidate]
    slots: int
    flops_per_token: Callable[[Layout], float]
    trajectories: Mapping[int, Path] = field(default_factory=dict)
    search_steps: int = 0
    score: Callable[[Layout], Score] | None = None
    say: Callable[[str], None] = lambda line: None
    alpha_learned: bool = True
    tie_slots: int | None = None
    taken: frozenset[Network] = frozenset()

    @cached_property
    def networks(self) -> Networks:
        """The networks that its layouts are."""
        return Networks(self.candidates, self.tie_slots)


@dataclass(frozen=True)
class Considered:
    """A layout that was scored by the SuperNet's weights.

    Attributes:
        layout: one candidate per slot.
        log_pi: sum over the slots of log pi of its candidates.
        flops_per_token: of its forward pass.
        score: its nats.
    """

    layout: Layout
    log_pi: float
    flops_per_token: float
    score: Score


@dataclass(frozen=True)
class Derived:
    """A fixed layout and what speaks for it.

    Attributes:
        layout: one candidate per slot.
        evidence: the method, and for a search final pi and margins.
        considered: the layouts among which it is the best, in the order in which they were scored,
            each network once.
    """

    layout: Layout
    evidence: Evidence
    considered: tuple[Considered, ...] = ()


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
