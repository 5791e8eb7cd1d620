"""The gaps between tensors: steps played on a heap, by hand where they are short."""

from training.gaps import Trace, gaps, scaled

KIB = 1024


def trace(sizes: tuple[int, ...], changes: tuple[int, ...], began: int = 0) -> Trace:
    return Trace(sizes, changes, began, (), ())


def test_what_is_stacked_leaves_no_gap() -> None:
    step = trace((8 * KIB, 4 * KIB, 2 * KIB), (0, 1, 2, 2, 1, 0))
    assert gaps([step], [KIB], []) == 0


def test_a_hole_that_nothing_fits_in_is_a_gap() -> None:
    # 0 is freed between the weight and 1; 2 is larger than it and goes behind 1.
    step = trace((4 * KIB, KIB, 5 * KIB), (0, 1, 0, 2, 1, 2))
    assert gaps([step], [KIB], []) == 4 * KIB
    # As large as it: too large by the room that an aligned piece asks for.
    step = trace((4 * KIB, KIB, 4 * KIB), (0, 1, 0, 2, 1, 2))
    assert gaps([step], [KIB], []) == 4 * KIB
    # Smaller than it: fits, and less is used than at first.
    step = trace((4 * KIB, KIB, 3 * KIB), (0, 1, 0, 2, 1, 2))
    assert gaps([step], [KIB], []) == 0


def test_moments_come_after_the_first_turn_and_stay() -> None:
    # Gradient 1 stands until the next one is there. Without moments, in KiB: weight 0-1, 0 at
    # 1-5, 1 at 5-6; in the second turn 0 does not fit into 1-5 and takes 6-10, of which 7 are used.
    step = trace((4 * KIB, KIB), (0, 1, 0), began=3)
    assert gaps([step], [KIB], []) == 3 * KIB
    # The moment takes 1-3 of the hole, the second gradient 3-4.
    assert gaps([step], [KIB], [2 * KIB]) == KIB


def test_gradients_of_the_step_before_stand_until_they_are_freed() -> None:
    assert gaps([trace((KIB, 8 * KIB), (0, 1, 1), began=0)], [], []) == 0
    # In the third turn the gradient does not fit where the first one stood.
    assert gaps([trace((KIB, 8 * KIB), (0, 1, 1), began=3)], [], []) == KIB


def test_a_memory_that_is_carried_on_keeps_its_place() -> None:
    # In KiB: 0, the memory before, at 0-4; 1, the one after, at 4-8. The second turn keeps 1 where
    # it is; the memory after it goes behind it, as 0-4 is too tight.
    carried = Trace((4 * KIB, 4 * KIB, KIB), (0, 1, 0, 2, 2), 0, (0,), (1,))
    assert gaps([carried], [], []) == 4 * KIB
    # Were it freed and made anew, the memories would lie at 0-4 and 4-8 in every turn.
    fresh = Trace((4 * KIB, 4 * KIB, KIB), (0, 1, 0, 2, 2), 0, (), ())
    assert gaps([fresh], [], []) == 0


def test_small_tensors_do_not_count() -> None:
    assert gaps([trace((512, 500, 600), (0, 1, 0, 2, 1, 2))], [], []) == 0


def test_sizes_grow_with_the_streams_and_stay_where_they_cannot_be_paired() -> None:
    low = trace((100, 64, 0), (0, 1, 0, 1))
    high = trace((150, 64, 10), (0, 1, 1, 0))
    assert scaled(low, high, 6).sizes == (400, 64, 60)
    assert scaled(low, high, 6).changes == low.changes
    other = trace((150, 64), (0, 1, 1, 0))
    assert scaled(low, other, 6) == other
