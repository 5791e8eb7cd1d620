"""The heap that keeps what is freed, against one that looks at every piece."""

import random

from training.heap import Heap


class SlowHeap:
    """All pieces in a list; every free run of them is found anew each time."""

    def __init__(self) -> None:
        self.pieces: list[tuple[int, int, str]] = []
        self.extent = 0

    def take(self, name: str, size: int) -> None:
        size = (size + 63) // 64 * 64
        best, at = None, 0
        for start, end, _ in [*sorted(self.pieces), (10**12, 10**12, "")]:
            free = start - at
            if start < 10**12 and free >= size + 96 and (best is None or free < best[0]):
                best = (free, at)
            if start < 10**12:
                at = end
        place = at if best is None else best[1]
        self.pieces.append((place, place + size, name))
        self.extent = max(self.extent, place + size)

    def free(self, name: str) -> None:
        self.pieces = [piece for piece in self.pieces if piece[2] != name]


def test_it_is_best_fit_with_free_neighbours_joined() -> None:
    source = random.Random(0)
    heap, slow, names = Heap(), SlowHeap(), list[str]()
    for number in range(3000):
        if names and source.random() < 0.48:
            name = names.pop(source.randrange(len(names)))
            heap.free(name)
            slow.free(name)
        else:
            name, size = str(number), source.choice([1, 64, 640, 1000, 4096, 4160, 30000])
            heap.take(name, size)
            slow.take(name, size)
            names.append(name)
        assert heap.extent == slow.extent
        assert heap.used == sum(end - start for start, end, _ in slow.pieces)
    assert len(names) > 50
    assert {name: heap.place(name) for name in names} == {
        name: (start, end) for start, end, name in slow.pieces
    }


def test_a_piece_freed_between_two_holds_no_other_of_its_size() -> None:
    heap = Heap()
    for name in "abc":
        heap.take(name, 6400)
    heap.free("b")
    heap.take("d", 6400)
    assert heap.place("d") == (19200, 25600)
    heap.take("e", 6400 - 128)
    assert heap.place("e") == (6400, 6400 + 6272)
    assert (heap.extent, heap.used, heap.largest_use) == (25600, 25472, 25472)


def test_what_is_freed_at_the_end_is_used_again() -> None:
    heap = Heap()
    for size in (6400, 640, 12800):
        heap.take("a", 640)
        heap.take("b", size)
        heap.free("a")
        heap.free("b")
    assert (heap.extent, heap.largest_use, heap.used) == (13440, 13440, 0)


def test_a_piece_can_go_by_another_name() -> None:
    heap = Heap()
    heap.take("a", 64)
    heap.rename("a", "b")
    heap.free("b")
    assert heap.used == 0
