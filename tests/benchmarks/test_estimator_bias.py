"""The benchmark's batched net is the model, and its exact gradient that of the expected loss."""

from itertools import product

import pytest
import torch
from torch import Tensor

from benchmarks.estimator_bias import (
    CANDIDATES,
    SLOTS,
    Task,
    estimates,
    exact_gradient,
    make_task,
    sides,
)
from nas.search.estimators import ESTIMATORS, gumbel_noise


def loss_of(task: Task, mix) -> Tensor:  # type: ignore[no-untyped-def]
    h_BTD, _, _ = task.net(task.ids_RT, task.net.initial_state(len(task.ids_RT)), mix)
    return task.net.nll(h_BTD, task.target_RT).mean()


def test_the_exact_gradient_is_that_of_the_mean_over_all_81_layouts() -> None:
    task = make_task(1)
    with torch.no_grad():
        loss = {
            layout: loss_of(task, [[(k, None)] for k in layout]).item()
            for layout in product(range(CANDIDATES), repeat=SLOTS)
        }

    def mean_at(alpha_LC: Tensor) -> float:
        pi = torch.softmax(alpha_LC, -1).tolist()
        return sum(
            pi[0][a] * pi[1][b] * pi[2][c] * pi[3][d] * value
            for (a, b, c, d), value in loss.items()
        )

    found_LC = exact_gradient(task)
    for slot, k in ((0, 0), (1, 2), (3, 1)):
        step_LC = torch.zeros(SLOTS, CANDIDATES, dtype=torch.float64)
        step_LC[slot, k] = 1e-5
        slope = (mean_at(task.alpha_LC + step_LC) - mean_at(task.alpha_LC - step_LC)) / 2e-5
        assert float(found_LC[slot, k]) == pytest.approx(slope, abs=1e-8)


@pytest.mark.parametrize("name", sorted(ESTIMATORS.keys() - {"spos"}))
def test_an_estimate_is_the_models_own_gradient_under_that_draw(name: str) -> None:
    task = make_task(2)
    found_BLC = estimates(task, sides()[name], 0.5, draws=3, seed=4)
    noise_BLC = gumbel_noise(4, 0, 3 * SLOTS, CANDIDATES).double().reshape(3, SLOTS, CANDIDATES)
    for found_LC, noise_LC in zip(found_BLC, noise_BLC, strict=True):
        alpha_LC = task.alpha_LC.clone().requires_grad_()
        mix = ESTIMATORS[name](alpha_LC, noise_LC, 0.5)
        (expected_LC,) = torch.autograd.grad(loss_of(task, mix), [alpha_LC])
        torch.testing.assert_close(found_LC, expected_LC, rtol=0, atol=1e-10)
