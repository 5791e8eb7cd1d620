"""Layouts with wider or narrower dense blocks."""

from model import Candidate, Layout
from model.blocks.dense import DenseOptions

# Widths are multiples of this: matrix products are no faster for what lies between.
GRAIN = 8


def with_width(layout: Layout, factor: float) -> Layout:
    """The layout with dense blocks so many times as wide, rounded down, under labels of their own.

    None becomes narrower than 8; one whose width does not change stays as it is.
    """
    return tuple(_resized(slot, factor) for slot in layout)


def _resized(slot: Candidate, factor: float) -> Candidate:
    if not isinstance(slot, DenseOptions):
        return slot
    width = max(GRAIN, int(slot.d_ffn * factor / GRAIN + 1e-9) * GRAIN)
    if width == slot.d_ffn or (factor >= 1.0 and width < slot.d_ffn):
        return slot
    return slot.model_copy(update={"d_ffn": width, "label": f"{slot.label[:30]}_{width}"})


def dense_widths(layout: Layout) -> list[int]:
    """The inner widths of a layout's dense blocks, in order."""
    return [slot.d_ffn for slot in layout if isinstance(slot, DenseOptions)]
