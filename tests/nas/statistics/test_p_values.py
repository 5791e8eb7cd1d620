"""Student's t and Holm's p values by hand."""

import math

import pytest

from nas.statistics.intervals import holm, students_p, t95


def test_p_and_t_are_those_of_printed_tables() -> None:
    for freedom, t in ((1, 12.706), (2, 4.303), (7, 2.365), (30, 2.042), (1000, 2.042)):
        assert t95(freedom) == t
        assert students_p(-t, min(freedom, 30)) == pytest.approx(0.05, abs=2e-4)
    assert students_p(0.0, 3) == 1.0
    assert students_p(math.inf, 3) == 0.0


def test_p_values_are_adjusted_as_holm_says() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005], 4) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7], 2) == [1.0, 1.0]


def test_a_comparison_that_is_planned_counts_before_it_is_made() -> None:
    assert holm([0.01, 0.04], 4) == pytest.approx([0.04, 0.12])
