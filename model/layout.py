"""Layouts as text ("a d a i", "adai", or labels), which network a layout is, shared weights.

A slot that adds nothing is no part of a network, nor is a label. Layouts of one network begin, by
one seed, with the same weights, and compute the same with them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from model.blocks import BLOCKS, Candidate
from utils.text import kind_words

# The candidate of each slot.
Layout = tuple[Candidate, ...]


def default_candidates() -> tuple[Candidate, ...]:
    """What the letters stand for, without options."""
    return tuple(
        kind.options.model_validate({"kind": name, "label": name}) for name, kind in BLOCKS.items()
    )


def layout_letters(slots: Sequence[Candidate]) -> str:
    """A layout as text: letters for the default candidates, the labels of others."""
    return " ".join(
        BLOCKS[slot.kind].letter if slot.label == slot.kind else slot.label for slot in slots
    )


def legend(slots: Sequence[Candidate]) -> str:
    """What the letters of a layout mean: `a attention, d feed-forward`."""
    each = dict.fromkeys(slots)
    return ", ".join(f"{layout_letters([one])} {kind_words(one.kind)}" for one in each)


def reads_context(candidate: Candidate) -> bool:
    """Whether what a block adds to a position follows from earlier tokens too."""
    option = type(candidate).reach
    sees_one = option is not None and getattr(candidate, option) == 1
    return BLOCKS[candidate.kind].mixes_tokens and not sees_one


def parse_layout(text: str, candidates: Sequence[Candidate]) -> Layout:
    """The candidate of each slot.

    The text holds labels, or letters of the default candidates, separated by spaces; letters may
    stand together. A word that is a label is that label. ValueError names the positions (the first
    is 1) that name no candidate.
    """
    by_label = {candidate.label: candidate for candidate in candidates}
    by_letter = {
        BLOCKS[candidate.kind].letter: candidate
        for candidate in candidates
        if candidate.label == candidate.kind
    }
    known = by_letter | by_label
    names: list[str] = []
    for word in text.split():
        # Letters also where a few of them are none, whose positions are then named.
        letters = sum(letter in by_letter for letter in word)
        names.extend(word if word not in by_label and 2 * letters > len(word) else [word])
    if not names:
        raise ValueError(f"layout: names no block; choose from {_choices(by_letter, by_label)}")
    problems = [
        f"layout: position {position}: {name!r} is none of {_choices(by_letter, by_label)}"
        for position, name in enumerate(names, 1)
        if name not in known
    ]
    if problems:
        raise ValueError("\n".join(problems))
    return tuple(known[name] for name in names)


def _choices(by_letter: dict[str, Candidate], by_label: dict[str, Candidate]) -> str:
    letters = {candidate.label: letter for letter, candidate in by_letter.items()}
    return ", ".join(
        f"{letters[label]} ({label})" if label in letters else label for label in by_label
    )


@dataclass(frozen=True)
class Network:
    """The canonical form of a layout; layouts are one network where it is equal.

    `blocks` holds the options of every block, in the order in which a model draws their weights,
    `order` which of them each slot that adds something applies.
    """

    blocks: tuple[str, ...]
    order: tuple[int, ...]


def block_options(candidate: Candidate) -> str | None:
    """What a candidate's block computes, as text without its label; None: it adds nothing."""
    if BLOCKS[candidate.kind].adds_nothing:
        return None
    names = sorted(type(candidate).model_fields.keys() - {"label"} - candidate.same_result)
    return ", ".join(f"{name}={getattr(candidate, name)!r}" for name in names)


def weight_options(candidate: Candidate) -> dict[str, object]:
    """The options that a block's weights were trained for: not those that may change later."""
    names = type(candidate).model_fields.keys() - candidate.same_result - candidate.adjustable
    return {name: getattr(candidate, name) for name in names - {"label"}}


def network_from(
    options_L: Sequence[str | None], labels_L: Sequence[str], tie_blocks: int | None
) -> Network:
    """The network of a layout, from what `block_options` says of each slot.

    Without shared weights that is the row of its blocks. Where slots share weights a block's place
    says with which others, so what adds nothing can be left out but not moved. Slots `tie_blocks`
    apart share the weights of each label; None: none do.
    """
    modules = len(options_L) if tie_blocks is None else min(tie_blocks, len(options_L))
    drawn: dict[tuple[int, str], int] = {}
    blocks: list[str] = []
    # As `LanguageModel` makes its modules: module by module, in each the labels as slots name them.
    for module in range(modules):
        for slot in range(module, len(options_L), modules):
            options, key = options_L[slot], (module, labels_L[slot])
            if options is not None and key not in drawn:
                drawn[key] = len(blocks)
                blocks.append(options)
    order = (
        drawn[slot % modules, label]
        for slot, (options, label) in enumerate(zip(options_L, labels_L, strict=True))
        if options is not None
    )
    return Network(tuple(blocks), tuple(order))


def network_of(slots: Sequence[Candidate], tie_blocks: int | None) -> Network:
    """The network of a layout, from the candidates of its slots."""
    return network_from(
        [block_options(slot) for slot in slots], [slot.label for slot in slots], tie_blocks
    )


@dataclass(frozen=True)
class TiedSlots:
    """The candidates whose weights each module holds, and per slot its own among its module's.

    Slots so many apart share their weights (as in Lan et al. 2020, ALBERT, arXiv 1909.11942).
    Differs from the paper: the weights may repeat with any period, and a slot shares per candidate,
    so that an attention slot and a dense slot of one group have nothing in common.
    """

    modules: tuple[tuple[Candidate, ...], ...]
    own: tuple[tuple[int, ...], ...]

    def module_of(self, slot: int) -> int:
        """The module of a slot."""
        return slot % len(self.modules)


def tied_slots(slots: Sequence[Sequence[Candidate]], period: int | None) -> TiedSlots:
    """Slots `period` apart share a module; without a period every slot has its own.

    ValueError: slots that share a module mean different candidates by one label.
    """
    count = len(slots) if period is None else min(period, len(slots))
    modules: list[dict[str, Candidate]] = [{} for _ in range(count)]
    for slot, candidates in enumerate(slots):
        for candidate in candidates:
            shared = modules[slot % count].setdefault(candidate.label, candidate)
            if shared != candidate:
                raise ValueError(
                    f"blocks[{slot}]: {candidate.label} has other options than in block "
                    f"{slot % count}, with which it shares its weights (tie_blocks {period})"
                )
    labels = [list(module) for module in modules]
    return TiedSlots(
        modules=tuple(tuple(module.values()) for module in modules),
        own=tuple(
            tuple(labels[slot % count].index(candidate.label) for candidate in candidates)
            for slot, candidates in enumerate(slots)
        ),
    )
