"""A layout drawn as a stack: a block for each slot, the first one lowest, coloured by kind.

L slots
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from report.plotting import colours, text_on

# Blocks that stand on each other; a taller layout goes on in a column beside.
ROWS = 16
_HIGHEST, _LOWEST, _ROOM = 28, 15, 250  # pixels of a block, and of a whole stack
_LETTERS = {"a": "attention", "d": "dense", "i": "identity"}


@dataclass(frozen=True)
class Palette:
    """The colour of each label on a page, and the height of a block."""

    hues: Mapping[str, str]
    block_px: int


@dataclass(frozen=True)
class Block:
    """A slot of a stack; `number` and `pi` are empty where they are not shown."""

    label: str
    title: str
    number: str
    pi: str
    hue: str
    ink: str


@dataclass(frozen=True)
class Stack:
    """Columns of blocks, each from below, and the slot that each column begins with."""

    columns: Sequence[tuple[int, Sequence[Block]]]


def palette_of(labels: Iterable[str], slots: int) -> Palette:
    """Colours of the labels; the letter of a default candidate has its colour."""
    kinds = {label: _LETTERS.get(label, label) for label in labels}
    hue = colours([*dict.fromkeys(kinds.values())])
    block_px = min(max(_ROOM // _rows(slots), _LOWEST), _HIGHEST)
    return Palette({label: hue[kind] for label, kind in kinds.items()}, block_px)


def stack_columns(slots: int) -> int:
    """The columns that a stack of so many slots takes."""
    return -(-slots // ROWS) or 1


def _rows(slots: int) -> int:
    """Blocks in a column, so that columns are about equally high."""
    return max(-(-slots // stack_columns(slots)), 1)


def stack(
    labels: Sequence[str],
    palette: Palette,
    pi_L: Sequence[float | None] | None = None,
    *,
    numbered: bool = True,
) -> Stack:
    """A layout as blocks, with the pi of each where it is known."""
    rows, blocks = _rows(len(labels)), []
    for slot, (label, pi) in enumerate(zip(labels, pi_L or [None] * len(labels), strict=True)):
        title = f"slot {slot}: {label}" + ("" if pi is None else f", pi {pi:.4f}")
        shown = "" if pi is None else f"{pi:.2f}"
        hue = palette.hues[label]
        number = str(slot) if numbered else ""
        blocks.append(Block(label, title, number, shown, hue, text_on(hue)))
    return Stack([(at, blocks[at : at + rows]) for at in range(0, len(blocks), rows)])
