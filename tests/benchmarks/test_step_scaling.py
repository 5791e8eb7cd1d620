"""The arithmetic of the scaling claims."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.harness import Timings
from benchmarks.sides import arithmetic
from benchmarks.step_scaling import against_memory, against_slots, excess_percent, fitted
from tests.benchmarks.test_reference import TINY


def test_a_line_is_that_of_least_squares() -> None:
    x, y = [4.0, 8.0, 12.0, 16.0, 24.0, 32.0], [41.0, 70.0, 105.0, 130.0, 215.0, 260.0]
    line = fitted(x, y)
    slope, at_zero = np.polyfit(x, y, 1)
    assert (line.slope, line.at_zero) == pytest.approx((slope, at_zero))
    assert line.r2 == pytest.approx(np.corrcoef(x, y)[0, 1] ** 2)
    assert 0.9 < line.r2 < 1


def test_a_straight_line_has_r2_1_and_a_flat_cloud_0() -> None:
    line = fitted([1, 2, 5], [5.0, 7.0, 13.0])
    assert (line.at_zero, line.slope, line.r2) == pytest.approx((3, 2, 1))
    assert fitted([1, 2, 3], [4.0, 1.0, 4.0]).r2 == pytest.approx(0)


def test_excess_is_what_the_time_grew_beyond_the_flops() -> None:
    assert excess_percent(3.0, 2.0) == pytest.approx(50)
    assert excess_percent(1.5, 2.0) == pytest.approx(-25)


def test_slots_are_read_from_the_names() -> None:
    timings = Timings({str(n): [0.010 + 0.002 * n, 0.011 + 0.002 * n, 1.0] for n in (4, 8, 32)})
    found = against_slots(timings)["line_ms"]
    assert (found["at_zero"], found["slope"]) == pytest.approx((11, 2))


def test_memories_are_compared_with_the_shapes_own_round_by_round() -> None:
    shapes = {str(memory): replace(TINY, memory=memory) for memory in (0, 4, 40)}
    flops = {name: arithmetic(shape)["ours"] for name, shape in shapes.items()}
    grown = flops["40"] / flops["4"]
    timings = Timings({"0": [1.0, 2.0], "4": [1.0, 2.0], "40": [1.3 * grown, 2.6 * grown]})
    found = against_memory(shapes, timings, "4")
    rows = found["memories"]
    assert rows["4"]["excess_percent"] == 0
    assert rows["40"]["excess_percent"] == pytest.approx(30)
    assert rows["40"]["flops_ratio"] == pytest.approx(grown)
    assert found["worst_percent"] == pytest.approx(max(30, rows["0"]["excess_percent"]))
