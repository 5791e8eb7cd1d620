"""Thinning, entropies, margins and frames against values worked out by hand."""

import numpy as np
import pytest

from report.run_files import frame_rows, thin
from utils.pi import entropy, margins


@pytest.mark.parametrize(
    ("count", "most", "expected"),
    [
        (5, 10, [0, 1, 2, 3, 4]),
        (5, 5, [0, 1, 2, 3, 4]),
        (5, 3, [0, 2, 4]),
        (11, 3, [0, 5, 10]),
        (5, 1, [4]),
        (1, 7, [0]),
        (0, 7, []),
    ],
)
def test_thinning_keeps_both_ends(count, most, expected):
    assert thin(count, most).tolist() == expected


def test_thinning_never_gives_more_than_asked():
    for most in range(1, 50):
        rows = thin(1237, most)
        assert len(rows) == most
        assert rows[-1] == 1236


def test_entropy_and_margins_of_pi():
    pi_LC = np.array([[1 / 3, 1 / 3, 1 / 3], [1.0, 0.0, 0.0], [0.5, 0.5, 0.0]])
    assert entropy(pi_LC) == pytest.approx(np.log([3, 1, 2]))
    assert margins(pi_LC).tolist() == [0.0, 1.0, 0.0]
    sure_LC = np.ones((2, 1))
    assert (entropy(sure_LC).tolist(), margins(sure_LC).tolist()) == ([0, 0], [1, 1])


@pytest.mark.parametrize(
    ("steps", "alpha_start", "most", "expected"),
    [
        (100, 60, 6, [0, 60, 70, 80, 89, 99]),  # the first, then those in which alpha moves
        (100, 500, 3, [0, 50, 99]),  # it never moves
        (1, 0, 40, [0]),
    ],
)
def test_frames_begin_with_the_first_step_and_skip_the_frozen_ones(
    steps, alpha_start, most, expected
):
    assert frame_rows(np.arange(steps), alpha_start, most).tolist() == expected
