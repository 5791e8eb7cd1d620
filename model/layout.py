"""Layouts as text: "a d a i", "adai", or the labels of the candidates."""

from collections.abc import Sequence

from model.blocks import BLOCKS, Candidate


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


def parse_layout(text: str, candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """The candidate of each slot.

    Args:
        text: labels, or letters of the default candidates, separated by spaces; letters may
            stand together. A word that is a label is that label.
        candidates: the candidates to choose from.

    Raises:
        ValueError: a position (the first is 1) that names no candidate.
    """
    by_label = {candidate.label: candidate for candidate in candidates}
    by_letter = {
        BLOCKS[candidate.kind].letter: candidate
        for candidate in candidates
        if candidate.label == candidate.kind
    }
    names: list[str] = []
    for word in text.split():
        together = word not in by_label and set(word) <= set(by_letter)
        names.extend(word if together else [word])
    if not names:
        raise ValueError(f"layout: names no slot; choose from {_choices(by_letter, by_label)}")
    known = by_letter | by_label
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
