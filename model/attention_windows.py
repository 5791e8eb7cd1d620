"""A segment longer than attention's window, cut so that few products meet keys that nobody sees.

B batch   T segment length   M memory length   W window   S = W - 1 + T keys   C = 2 W - 1 of them
N blocks of W queries
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from model.state import Segment


@dataclass(frozen=True)
class Cut:
    """N blocks of W queries, each with the C keys that they see, in the place of streams.

    The last block may end with padding, which no other query sees.

    Attributes:
        segment: what the queries of one block are.
        blocks: N; 1: the segment is not cut.
        length: T.
        window: W; None: all keys.
        memory: M.
    """

    segment: Segment
    blocks: int
    length: int
    window: int | None
    memory: int

    def queries(self, rows_BTX: Tensor) -> Tensor:
        """From (B, T, ...) to (B N, W, ...)."""
        if self.blocks == 1:
            return rows_BTX
        padded = _padded(rows_BTX, 1, self.blocks * self.segment.length)
        return padded.reshape(-1, self.segment.length, *rows_BTX.shape[2:])

    def keys(self, rows: Tensor, *, axis: int) -> Tensor:
        """From (B, ..., S, ...) to (B N, ..., C, ...), where `axis` has the S rows."""
        if self.blocks == 1:
            return rows
        window = self.segment.length
        padded = _padded(rows, axis, self.memory + self.blocks * window)
        blocks = padded.unfold(axis, self.memory + window, window)
        return blocks.movedim(-1, axis).movedim(axis + 1, 1).flatten(0, 1)

    def joined(self, rows: Tensor) -> Tensor:
        """The inverse of `queries`: (B, T, ...), without padding."""
        if self.blocks == 1:
            return rows
        parts = rows.reshape(-1, self.blocks * self.segment.length, *rows.shape[2:])
        return parts[:, : self.length]

    def mask(self, dtype: torch.dtype) -> Tensor:
        """0 where a query sees a key, -inf elsewhere; (B N, W, C), or (1, W, C) if all are alike.

        Only the first block reads the memory, whose rows may hold nothing yet.
        """
        first_BWC = self.segment.mask(self.memory, self.window, dtype)
        if self.blocks == 1 or self.segment.full or not self.memory:
            return first_BWC
        later = Segment(self.segment.seen_B, self.segment.length, full=True)
        mask_BNWC = later.mask(self.memory, self.window, dtype).repeat(
            len(first_BWC), self.blocks, 1, 1
        )
        mask_BNWC[:, 0] = first_BWC
        return mask_BNWC.flatten(0, 1)


def cut_of(segment: Segment, window: int | None, memory: int) -> Cut:
    """How the queries of a segment are cut, where the memory holds all that the first one sees."""
    blocks = _blocks(window, memory, segment.length)
    if blocks == 1:
        return Cut(segment, 1, segment.length, window, memory)
    assert window is not None

    def made() -> Segment:
        return Segment(segment.seen_B, window, segment.cache, segment.full, segment.kernel)

    return Cut(segment.once(("cut", window), made), blocks, segment.length, window, memory)


def pairs_of(window: int | None, memory: int, length: int) -> tuple[int, int]:
    """How many queries are computed, padding included, and with how many keys each."""
    if (blocks := _blocks(window, memory, length)) == 1:
        return length, memory + length
    assert window is not None
    return blocks * window, memory + window


def _blocks(window: int | None, memory: int, length: int) -> int:
    if window is None or memory != window - 1 or length <= window:
        return 1
    blocks = -(-length // window)
    return blocks if blocks * window * (memory + window) < length * (memory + length) else 1


def _padded(rows: Tensor, axis: int, length: int) -> Tensor:
    """Zeros behind the rows of an axis."""
    behind = rows.dim() - 1 - axis
    return F.pad(rows, (0, 0) * behind + (0, length - rows.shape[axis]))
