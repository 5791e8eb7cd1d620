"""Tau by schedule, at its ends and between them, and as a search records it."""

from itertools import pairwise
from pathlib import Path

import pytest

from nas.search.config import TauConfig
from nas.search.step import SearchStep
from nas.search.tau import TAU_SCHEDULES, tau_at
from nas.search.trajectory import Trajectory
from tests import tiny
from tests.nas.search.test_step import make
from training.checkpoint import Checkpoints
from training.state import TrainState

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


def recorded(until: int) -> tuple[SearchStep, TrainState, Trajectory]:
    step, state = make()
    hook = Trajectory(["attention", "dense", "identity"], step.plan)
    go(step, state, hook, until)
    return step, state, hook


def go(step: SearchStep, state: TrainState, hook: Trajectory, until: int) -> None:
    while state.step < until:
        step(state, tiny.batch(seed=1000 + state.step, first=state.step == 0))
        state.step += 1
        hook(state, {})


def test_a_search_records_the_tau_that_each_step_had() -> None:
    step, _, hook = recorded(12)
    assert hook.tau == pytest.approx([step.plan.tau(number) for number in range(12)])
    assert len(set(hook.tau)) == 9


def test_law_8_a_resume_drops_the_rows_beyond_its_checkpoint(tmp_path: Path) -> None:
    recorded(12)[2].save(tmp_path / "whole.npz")
    step, state, hook = recorded(7)
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(state)
    # A kill between the next pi.npz and its checkpoint leaves rows beyond this one.
    go(step, state, hook, 9)
    hook.save(tmp_path / "cut.npz")
    step, again, hook = recorded(0)
    checkpoint = checkpoints.find()
    assert checkpoint is not None
    checkpoint.restore(again)
    hook.resume(tmp_path / "cut.npz", again)
    go(step, again, hook, 12)
    hook.save(tmp_path / "cut.npz")
    assert (tmp_path / "cut.npz").read_bytes() == (tmp_path / "whole.npz").read_bytes()
