"""Student's t against scipy, and Holm's p values by hand."""

import math

import pytest
from scipy import stats

from nas.statistics.p_values import holm, students_p, students_t


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 7, 29, 30])
def test_p_and_t_are_those_of_scipy(freedom: int) -> None:
    for t in (0.0, 0.3, -1.0, 2.5, 40.0):
        assert students_p(t, freedom) == pytest.approx(2 * stats.t.sf(abs(t), freedom), abs=1e-12)
    for p in (0.4, 0.05, 0.05 / 12):
        assert students_t(p, freedom) == pytest.approx(stats.t.isf(p / 2, freedom), rel=1e-9)
    assert students_p(math.inf, freedom) == pytest.approx(0.0, abs=1e-12)


def test_p_values_are_adjusted_as_holm_says() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005], 4) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7], 2) == [1.0, 1.0]


def test_a_comparison_that_is_planned_counts_before_it_is_made() -> None:
    assert holm([0.01, 0.04], 4) == pytest.approx([0.04, 0.12])
