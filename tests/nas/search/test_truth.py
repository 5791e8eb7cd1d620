"""The search finds what is true, on a task whose answer is known (tests/table_task.py)."""

import numpy as np
import pytest

from tests import table_task

STEPS = 1000


@pytest.mark.slow
def test_only_attention_then_dense_solves_the_task() -> None:
    nats = {
        name: table_task.train_alone(layout, STEPS, seed=0)
        for name, layout in table_task.layouts().items()
    }
    assert nats.pop("a d") < table_task.FLOOR_NATS + 0.4
    assert min(nats.values()) > table_task.FLOOR_NATS + 1.2


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_the_search_finds_attention_then_dense(seed: int) -> None:
    pi_LC = table_task.search(STEPS, seed)
    assert pi_LC[0, 0] >= 0.8
    assert pi_LC[1, 1] >= 0.8


def test_with_alphas_gradient_cut_pi_stays_uniform_and_the_check_above_fails() -> None:
    pi_LC = table_task.search(60, 0, cut_alpha=True)
    assert np.allclose(pi_LC, 0.5)
    assert not pi_LC[0, 0] >= 0.8


def test_uncut_the_same_short_search_moves() -> None:
    assert not np.allclose(table_task.search(60, 0), 0.5)
