"""Tables of times: the correction, what they are refused for, what is timed."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nas.costs import model as table
from nas.costs.model import WorkloadTimes, fit_correction
from tests import tiny

CANDIDATES = tiny.candidates("attention", "dense", "identity")


def test_the_correction_minimises_relative_errors() -> None:
    generator = np.random.default_rng(0)
    summed_N = generator.uniform(1, 10, size=30)
    measured_N = (0.3 + 1.1 * summed_N) * generator.uniform(0.9, 1.1, size=30)

    def error(floor: float, scale: float) -> float:
        return float((((floor + scale * summed_N) / measured_N - 1) ** 2).sum())

    floor, scale = fit_correction(summed_N, measured_N)
    least = error(floor, scale)
    for step in (-1e-3, 1e-3):
        assert error(floor + step, scale) > least
        assert error(floor, scale + step) > least


def test_of_sums_that_are_all_alike_only_a_scale_is_taken() -> None:
    floor, scale = fit_correction(np.full(5, 2.0), np.array([2.9, 3.1, 3.0, 3.0, 3.0]))
    assert floor == 0.0
    assert scale == pytest.approx(1.5, rel=1e-2)
    # A scale below 0 would call the dearest layout the cheapest.
    assert fit_correction(np.array([1.0, 2.0]), np.array([2.0, 1.0]))[1] > 0


def wholes(factor: float, shuffled: bool = False) -> tuple[table.Whole, ...]:
    measured = [1.0, 2.0, 3.0, 4.0]
    predicted = [2.0, 1.0, 4.0, 3.0] if shuffled else [factor * one for one in measured]
    pairs = zip(measured, predicted, strict=True)
    return tuple(
        table.Whole(layout="a", measured_ms=one, predicted_ms=other) for one, other in pairs
    )


def times_table(**given: Any) -> WorkloadTimes:
    return WorkloadTimes(
        rest_ms=2.0,
        by_label_ms={"attention": 1.0, "dense": 0.5},
        floor_ms=0.25,
        scale=0.9,
        **{"wholes": wholes(1.0), **given},
    )


def test_a_layouts_cost_is_corrected() -> None:
    attention, dense, _ = CANDIDATES
    cost = times_table().cost("latency")
    assert cost([attention, dense, dense]) == pytest.approx(0.25 + 0.9 * (2.0 + 1.0 + 0.5 + 0.5))


def test_a_table_says_when_it_may_not_be_trusted() -> None:
    good, far, shuffled = wholes(1.07), wholes(1.09), wholes(1.0, shuffled=True)
    assert times_table(wholes=good).doubt is None
    assert "4 fitted layouts the mean error is 9.0% (at most 8%)" in str(
        times_table(wholes=far).doubt
    )
    assert "tau 0.33 (at least 0.9)" in str(times_table(wholes=shuffled).doubt)
    # What the fit has not seen counts more than what it has.
    assert times_table(wholes=far, held_out=good).doubt is None
    assert "4 held-out" in str(times_table(wholes=good, held_out=far).doubt)


def measure_as(charge: Callable[[table.Layout], float]) -> Any:
    """A clock that charges for layouts."""
    return lambda layouts: {name: charge(layout) for name, layout in layouts.items()}


def test_times_of_parts_come_from_stacks_less_a_model_without_slots() -> None:
    """A clock that charges 5 ms, 2 ms for each attention slot and 1 ms for each dense one."""
    charge = {"attention": 2.0, "dense": 1.0, "identity": 0.0}
    measure = measure_as(lambda layout: 5.0 + sum(charge[slot.label] for slot in layout))
    times = table.times_table(measure, CANDIDATES, 3, table.spread_layouts(CANDIDATES, 3, 6, 2))
    assert times.rest_ms == 5.0
    assert times.by_label_ms == pytest.approx(charge)
    assert (times.floor_ms, times.scale) == pytest.approx((0.0, 1.0), abs=1e-9)
    assert times.agreement[0] == pytest.approx(0, abs=1e-12)
