"""Tau by schedule, at its ends and between them; a trained tau, its gradient and its resume."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from nas.search.config import TauConfig
from nas.search.estimators import ESTIMATORS, gumbel_noise
from nas.search.plan import SearchPlan, tau_now
from nas.search.step import SearchStep, build_alpha_optimiser
from nas.search.tau import TAU_SCHEDULES, build_rho, tau_at
from nas.search.trajectory import Trajectory
from tests import tiny
from tests.nas.search.test_step import make
from training.checkpoint import Checkpoints
from training.state import TrainState
from utils.pi import load_pi

MOVING = [name for name in TAU_SCHEDULES if name != "constant"]


@pytest.mark.parametrize("schedule", MOVING)
def test_law_9_tau_has_start_until_alphas_first_step_and_end_at_the_last(schedule: str) -> None:
    config = TauConfig(schedule=schedule, start=2.0, end=0.2)
    values = [tau_at(config, step, alpha_start=25, steps=100) for step in range(100)]
    assert values[:26] == [2.0] * 26
    assert values[99] == 0.2
    assert tau_at(config, 100, alpha_start=25, steps=100) == 0.2
    assert all(a >= b for a, b in pairwise(values))


@pytest.mark.parametrize(
    ("schedule", "middle"), [("linear", 1.1), ("cosine", 1.1), ("exponential", 0.4**0.5)]
)
def test_half_way_values(schedule: str, middle: float) -> None:
    config = TauConfig(schedule=schedule, start=2.0, end=0.2)
    assert tau_at(config, 50, alpha_start=0, steps=101) == pytest.approx(middle)


def test_step_has_equal_geometric_stairs_with_the_last_at_end() -> None:
    config = TauConfig(schedule="step", start=1.6, end=0.1, stairs=5)
    values = [tau_at(config, step, alpha_start=0, steps=1001) for step in range(1001)]
    stairs = sorted(set(values), reverse=True)
    expected = [1.6, 0.8, 0.4, 0.2, 0.1]
    assert len(stairs) >= 5
    for value in stairs:
        assert min(abs(value - stair) for stair in expected) < 1e-12
    lengths = [sum(abs(value - stair) < 1e-12 for value in values) for stair in expected]
    assert max(lengths) - min(lengths) <= 1


def test_constant_has_one_value() -> None:
    config = TauConfig(schedule="constant", start=0.7)
    assert {tau_at(config, step, alpha_start=3, steps=10) for step in range(10)} == {0.7}


LEARNABLE = {"schedule": "learnable", "start": 0.8, "floor": 0.2}
LABELS = ["attention", "dense", "identity"]


def learning(**options: Any) -> tuple[SearchStep, TrainState, Trajectory]:
    step, state = make(**options)
    config = step.plan.config.model_copy(update={"tau": TauConfig.model_validate(LEARNABLE)})
    plan = SearchPlan(config, 12, 5, 4)
    state.parameters |= build_rho(config.tau)
    state.optimisers["alpha"] = build_alpha_optimiser(
        state.parameters["alpha"], plan, [state.parameters["rho"]]
    )
    return replace(step, plan=plan), state, Trajectory(LABELS, plan)


def go(step: SearchStep, state: TrainState, hook: Trajectory, until: int) -> None:
    while state.step < until:
        step(state, tiny.batch(seed=1000 + state.step, first=state.step == 0))
        state.step += 1
        hook(state, {})


def tau_of(step: SearchStep, state: TrainState) -> float:
    return torch.as_tensor(tau_now(step.plan, state, 0)).item()


@pytest.mark.parametrize("data", ["next_batch", "shared", "split"])
def test_tau_holds_start_until_alphas_first_step_and_learns_from_there(data: str) -> None:
    step, state, hook = learning(data=data)
    go(step, state, hook, 11)
    assert hook.tau[:3] == pytest.approx([0.8] * 3)
    assert len(set(hook.tau[2:])) == 9
    state.parameters["rho"].data.fill_(-200.0)
    assert tau_of(step, state) == pytest.approx(0.2)


@pytest.mark.parametrize("estimator", sorted(ESTIMATORS.keys() - {"spos"}))
def test_every_estimator_gives_tau_a_gradient_and_relaxed_ones_the_true_one(estimator: str) -> None:
    net, batch = tiny.supernet(), tiny.batch()
    alpha_LC = torch.randn(3, 3, generator=torch.Generator().manual_seed(0)).double()
    noise_LC = gumbel_noise(0, 4, 3, 3).double()

    def loss_at(rho: Tensor) -> Tensor:
        tau = 0.2 + torch.nn.functional.softplus(rho)
        h_BTD, _, _ = net(
            batch.input_BT, net.initial_state(2), ESTIMATORS[estimator](alpha_LC, noise_LC, tau)
        )
        return net.nll(h_BTD, batch.target_BT).mean()

    rho = torch.tensor(-0.3, dtype=torch.float64, requires_grad=True)
    (found,) = torch.autograd.grad(loss_at(rho), [rho])
    assert float(found.abs()) > 1e-6
    if estimator in ("soft", "dirichlet"):
        with torch.no_grad():
            slope = float(loss_at(rho + 1e-6) - loss_at(rho - 1e-6)) / 2e-6
        assert slope == pytest.approx(float(found), abs=1e-7)


def test_a_search_records_the_tau_that_each_step_had() -> None:
    step, state = make()
    hook = Trajectory(LABELS, step.plan)
    go(step, state, hook, 12)
    assert hook.tau == pytest.approx([step.plan.tau(number) for number in range(12)])
    assert len(set(hook.tau)) == 9


def test_law_8_a_resume_goes_on_with_the_same_tau(tmp_path: Path) -> None:
    step, state, hook = learning()
    go(step, state, hook, 12)
    hook.save(tmp_path / "whole.npz")
    step, state, hook = learning()
    go(step, state, hook, 7)
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(state)
    # A kill between the next pi.npz and its checkpoint leaves rows beyond this one.
    go(step, state, hook, 9)
    hook.save(tmp_path / "cut.npz")
    step, again, hook = learning()
    checkpoint = checkpoints.find()
    assert checkpoint is not None
    checkpoint.restore(again)
    hook.resume(tmp_path / "cut.npz", again)
    go(step, again, hook, 12)
    hook.save(tmp_path / "cut.npz")
    assert (tmp_path / "cut.npz").read_bytes() == (tmp_path / "whole.npz").read_bytes()
    tau_N = load_pi(tmp_path / "whole.npz")["tau"]
    assert tau_N[-1] == pytest.approx(tau_of(step, again))
