"""Entropies and margins of pi against values worked out by hand."""

import numpy as np
import pytest

from utils.pi import entropy, margins


def test_entropy_and_margins_of_pi():
    pi_LC = np.array([[1 / 3, 1 / 3, 1 / 3], [1.0, 0.0, 0.0], [0.5, 0.5, 0.0]])
    assert entropy(pi_LC) == pytest.approx(np.log([3, 1, 2]))
    assert margins(pi_LC).tolist() == [0.0, 1.0, 0.0]
    sure_LC = np.ones((2, 1))
    assert (entropy(sure_LC).tolist(), margins(sure_LC).tolist()) == ([0, 0], [1, 1])
