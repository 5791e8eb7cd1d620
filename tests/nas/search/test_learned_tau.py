"""A trained temperature: where it begins, what it never passes, its gradient, its resume."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from nas.config import SearchConfig, TauConfig
from nas.search.estimators import ESTIMATORS, gumbel_noise
from nas.search.plan import SearchPlan, tau_now
from nas.search.step import SearchStep, build_alpha_optimiser
from nas.search.tau import build_rho
from nas.search.trajectory import Trajectory, load_pi
from tests import tiny
from tests.nas.search.test_step import make
from training.checkpoint import read_checkpoint, save_checkpoint
from training.state import TrainState

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


@pytest.mark.parametrize("data", ["prequential", "shared", "split"])
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


def test_law_8_a_resume_goes_on_with_the_same_tau(tmp_path: Path) -> None:
    step, state, hook = learning()
    go(step, state, hook, 12)
    hook.save(tmp_path / "whole.npz")
    step, state, hook = learning()
    go(step, state, hook, 7)
    hook.save(tmp_path / "cut.npz")
    save_checkpoint(tmp_path / "x.safetensors", state, "identity")
    step, again, hook = learning()
    read_checkpoint(tmp_path / "x.safetensors", again, "identity", 12).restore(again)
    hook.resume(tmp_path / "cut.npz", again)
    go(step, again, hook, 12)
    hook.save(tmp_path / "cut.npz")
    assert (tmp_path / "cut.npz").read_bytes() == (tmp_path / "whole.npz").read_bytes()
    tau_N = load_pi(tmp_path / "whole.npz")["tau"]
    assert tau_N[-1] == pytest.approx(tau_of(step, again))


def test_a_trajectory_with_another_tau_is_refused(tmp_path: Path) -> None:
    step, state, hook = learning()
    go(step, state, hook, 6)
    hook.save(tmp_path / "pi.npz")
    state.parameters["rho"].data += 1.0
    with pytest.raises(ValueError, match="tau is of another run; the checkpoint of step 6"):
        Trajectory(LABELS, step.plan).resume(tmp_path / "pi.npz", state)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tau": {**LEARNABLE, "end": 0.3}}, "end: has no effect with schedule learnable"),
        ({"tau": {"floor": 0.3}}, "floor: has no effect with schedule linear"),
        ({"tau": {**LEARNABLE, "floor": 0.9}}, r"floor: must be below start 0\.8, found 0\.9"),
        ({"tau": {"schedule": "learnable", "start": 0.05}}, "below start 0.05, found 0.1"),
        ({"tau": LEARNABLE, "estimator": "spos"}, "tau.schedule: learnable trains tau on alpha's"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SearchConfig.model_validate({"steps": 20, "optimiser": {"warmup_steps": 2}, **options})
