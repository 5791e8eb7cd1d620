"""A layout drawn as a stack: a block for each slot, the first one lowest, coloured by kind.

L slots
"""

from collections.abc import Iterable, Sequence
from html import escape

from report.plotting import colours, text_on

# Blocks that stand on each other; a taller layout goes on in a column beside.
ROWS = 16
_HIGHEST, _LOWEST, _ROOM = 28, 15, 250  # pixels of a block, and of a whole stack
_LETTERS = {"a": "attention", "d": "dense", "i": "identity"}


class Palette:
    """A class of the style sheet for each label, so that a page may forbid styles of elements."""

    def __init__(self, labels: Iterable[str], slots: int = 1) -> None:
        once = dict.fromkeys(labels)
        # A letter stands for a default candidate and has its colour.
        kinds = {label: _LETTERS.get(label, label) for label in once}
        self._hue = colours([*dict.fromkeys(kinds.values())])
        self._class = {label: f"k{index}" for index, label in enumerate(once)}
        self._kinds, self._slots = kinds, max(slots, 1)

    @property
    def rules(self) -> str:
        """What the style sheet must have: colours, and the height of a block."""
        high = min(max(_ROOM // _rows(self._slots), _LOWEST), _HIGHEST)
        hues = {name: self._hue[self._kinds[label]] for label, name in self._class.items()}
        blocks = "".join(
            f".{name} {{ background: {hue}; color: {text_on(hue)}; }}\n"
            for name, hue in hues.items()
        )
        return f":root {{ --block: {high}px; }}\n{blocks}"

    def class_of(self, label: str) -> str:
        """The class of a label's block."""
        return self._class[label]


def _rows(slots: int) -> int:
    """Blocks in a column, so that columns are about equally high."""
    return -(-slots // stack_columns(slots))


def stack_columns(slots: int) -> int:
    """The columns that a stack of so many slots takes."""
    return -(-slots // ROWS) or 1


def stack(
    labels: Sequence[str],
    palette: Palette,
    pi_L: Sequence[float | None] | None = None,
    *,
    numbered: bool = True,
) -> str:
    """HTML of a layout as a list of blocks, with the pi of each where it is known."""
    rows = _rows(len(labels))
    pis = pi_L or [None] * len(labels)
    blocks = [
        _block(slot, label, pi, palette.class_of(label), numbered)
        for slot, (label, pi) in enumerate(zip(labels, pis, strict=True))
    ]
    columns = [
        f'<ol class="stack" start="{first}">{"".join(blocks[first : first + rows])}</ol>'
        for first in range(0, len(blocks), rows)
    ]
    return f'<div class="columns">{"".join(columns)}</div>'


def _block(slot: int, label: str, pi: float | None, name: str, numbered: bool) -> str:
    words = f"slot {slot}: {label}" + ("" if pi is None else f", pi {pi:.4f}")
    number = f'<span class="slot">{slot}</span>' if numbered else ""
    sure = "" if pi is None else f'<span class="pi">{pi:.2f}</span>'
    kind = f'<span class="kind">{escape(label)}</span>'
    return f'<li class="{name}" title="{escape(words)}">{number}{kind}{sure}</li>'
