"""A beam over changes of one slot, by the SuperNet's weights."""

from collections.abc import Iterator
from itertools import chain

from nas.derivation.base import Choice, Derived, Request
from nas.derivation.scored import Scores
from nas.derivation.searched import read_searches


def beam(request: Request) -> Derived:
    """From the likeliest layout on, score what differs from the best ones in one slot.

    In every round all neighbours of the `derive.width` best networks so far are scored, until no
    round finds a new one or `derive.evaluations` are used up. Neighbours differ in one slot from
    the layout, or from the same network with its first idle slot elsewhere. Every layout that is
    scored is a whole one, so scores are comparable (a beam over the slots in order would have to
    score beginnings of layouts). Nothing is drawn.

    Raises:
        ValueError: there is no finished search, its weights are not there, or no layout costs at
            most derive.flops.
    """
    config = request.config
    searched = read_searches(request, "beam")
    scores = Scores(request, searched, config.evaluations, "beam")
    scores.add(scores.start())
    before = 0
    while before < len(scores.found) and not scores.full:
        before = len(scores.found)
        for parent in scores.best(config.width):
            forms = request.networks.near_forms(parent)
            for choice in chain.from_iterable(
                _neighbours(f, len(request.candidates)) for f in forms
            ):
                if not scores.full and scores.allowed(choice):
                    scores.add(choice)
    return scores.derived(f"beam of width {config.width} from")


def _neighbours(choice: Choice, candidates: int) -> Iterator[Choice]:
    """The layouts that differ in one slot."""
    for slot, now in enumerate(choice):
        for k in range(candidates):
            if k != now:
                yield (*choice[:slot], k, *choice[slot + 1 :])
