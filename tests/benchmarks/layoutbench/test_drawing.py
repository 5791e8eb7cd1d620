"""Layouts that are drawn: uniform, each network once, of a cost."""

import pytest

from benchmarks.layoutbench.rank import equal_layouts, free_layouts
from nas.derivation.base import Networks
from tests import tiny


def networks_of(*names: str, tie_slots: int | None = None) -> Networks:
    return Networks(tiny.candidates(*names), tie_slots)


THREE = networks_of("attention", "dense", "identity")
NO_TWINS = Networks(
    tiny.candidates("attention", "dense", {"kind": "dense", "label": "wide", "d_ffn": 24}), None
)


@pytest.mark.parametrize(("slots", "count"), [(2, 7), (6, 127), (12, 200)])
def test_no_draw_holds_a_network_twice(slots: int, count: int) -> None:
    """Of six slots there are 729 layouts and 1 + 2 + 4 + ... + 64 networks."""
    for seed in range(3):
        free = free_layouts(THREE, slots, count, seed)
        assert len({THREE.of(choice) for choice in free}) == len(free) == count
        target = (0,) + (2,) * (slots - 1)
        equal = equal_layouts(target, THREE, 20, seed, lambda choice: choice.count(0) == 1)
        assert len({THREE.of(choice) for choice in equal}) == len(equal)
    assert len(free_layouts(THREE, 6, 500, 0)) == 127


def test_rearrangements_of_one_network_are_drawn_once() -> None:
    """Of one block among 24 slots there is one network, and 24 layouts."""
    target = (0,) + (2,) * 23
    assert len(equal_layouts(target, THREE, 5, 0, lambda choice: False)) == 1
    shared = networks_of("attention", "dense", "identity", tie_slots=2)
    pair = (0, 0) + (2,) * 22
    drawn = equal_layouts(pair, shared, 5, 0, lambda choice: False)
    assert len(drawn) == 3, "both by one module, or one by each in either order"


def cost(choice: tuple[int, ...]) -> float:
    return 10 + sum((5.0, 3.0, 0.0)[k] for k in choice)


@pytest.mark.parametrize("slots", [6, 14])
def test_equal_layouts_cost_about_as_much(slots: int) -> None:
    target = tuple([0, 1, 2] * slots)[:slots]

    def fits(choice: tuple[int, ...]) -> bool:
        return abs(cost(choice) / cost(target) - 1) <= 0.03

    layouts = equal_layouts(target, THREE, 6, 0, fits)
    assert len({THREE.of(choice) for choice in layouts}) == 6
    assert all(map(fits, layouts))
