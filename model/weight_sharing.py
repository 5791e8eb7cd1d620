"""Which slots share their weights (as in Lan et al. 2020, ALBERT, arXiv 1909.11942).

Differs from the paper: the weights may repeat with any period, and a slot shares per candidate,
so that an attention slot and a dense slot of one group have nothing in common.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from model.blocks import Candidate


@dataclass(frozen=True)
class TiedSlots:
    """Slots of the network and the modules that hold their weights.

    Attributes:
        modules: the candidates whose weights each module holds.
        own: per slot of the network the indices of its candidates in its module.
    """

    modules: tuple[tuple[Candidate, ...], ...]
    own: tuple[tuple[int, ...], ...]

    def module_of(self, slot: int) -> int:
        """The module of a slot."""
        return slot % len(self.modules)


def tied_slots(slots: Sequence[Sequence[Candidate]], period: int | None) -> TiedSlots:
    """Slots `period` apart share a module; without a period every slot has its own.

    Raises:
        ValueError: slots that share a module mean different candidates by one label.
    """
    count = len(slots) if period is None else min(period, len(slots))
    modules: list[dict[str, Candidate]] = [{} for _ in range(count)]
    for slot, candidates in enumerate(slots):
        for candidate in candidates:
            shared = modules[slot % count].setdefault(candidate.label, candidate)
            if shared != candidate:
                raise ValueError(
                    f"slots[{slot}]: {candidate.label} has other options than in slot "
                    f"{slot % count}, with which it shares its weights (tie_slots {period})"
                )
    labels = [list(module) for module in modules]
    return TiedSlots(
        modules=tuple(tuple(module.values()) for module in modules),
        own=tuple(
            tuple(labels[slot % count].index(candidate.label) for candidate in candidates)
            for slot, candidates in enumerate(slots)
        ),
    )
