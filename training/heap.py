"""How far a heap grows that keeps what is freed, as the C library's does under our settings.

The library takes the smallest free piece that holds an aligned piece wherever it may begin, so a
piece that was freed between two others holds no other of its own size. What is left over beside
an aligned piece serves small objects, which stand between the tensors ever after.
"""

import bisect
from collections.abc import Hashable

# glibc's malloc.c looks for alignment + 32 bytes more; torch aligns to 64 bytes.
_ALIGNMENT = 64
_SPARE = _ALIGNMENT + 32


class Heap:
    """Pieces of one range of addresses: best fit, free neighbours are one piece.

    Attributes:
        used: bytes of the pieces that are taken.
        largest_use: the largest `used` so far.
        extent: the highest address so far that a piece reached.
    """

    def __init__(self) -> None:
        self.used = self.largest_use = self.extent = 0
        self._top = 0
        self._taken: dict[Hashable, tuple[int, int]] = {}
        # Free pieces below the top: by size, and by either end.
        self._by_size: list[tuple[int, int]] = []
        self._end_of: dict[int, int] = {}
        self._start_of: dict[int, int] = {}

    def take(self, name: Hashable, size: int) -> None:
        """A piece of so many bytes."""
        size = -(-size // _ALIGNMENT) * _ALIGNMENT
        place = bisect.bisect_left(self._by_size, (size + _SPARE, 0))
        if place < len(self._by_size):
            start = self._by_size[place][1]
            self._add(start + size, self._remove(start))
        else:
            start, self._top = self._top, self._top + size
        self._taken[name] = (start, start + size)
        self.used += size
        self.largest_use = max(self.largest_use, self.used)
        self.extent = max(self.extent, self._top)

    def free(self, name: Hashable) -> None:
        """Give a piece back, to be taken again."""
        start, end = self._taken.pop(name)
        self.used -= end - start
        if start in self._start_of:
            before = self._start_of[start]
            self._remove(before)
            start = before
        if end in self._end_of:
            end = self._remove(end)
        if end == self._top:
            self._top = start
        else:
            self._add(start, end)

    def rename(self, old: Hashable, new: Hashable) -> None:
        """The piece of one name goes by another."""
        self._taken[new] = self._taken.pop(old)

    def place(self, name: Hashable) -> tuple[int, int]:
        """Where a piece begins and ends."""
        return self._taken[name]

    def _add(self, start: int, end: int) -> None:
        self._end_of[start], self._start_of[end] = end, start
        bisect.insort(self._by_size, (end - start, start))

    def _remove(self, start: int) -> int:
        """Take a free piece out of the books; its end."""
        end = self._end_of.pop(start)
        del self._start_of[end]
        del self._by_size[bisect.bisect_left(self._by_size, (end - start, start))]
        return end
