"""What pi.npz says of alpha's learning rate, which `auto` alone does not tell."""

from pathlib import Path

import pytest
import torch

from nas.search.config import SearchConfig
from nas.search.plan import SearchPlan
from nas.search.trajectory import Trajectory, load_pi
from training.state import TrainState

LABELS = ["attention", "dense"]


def state_at(step: int) -> TrainState:
    state = TrainState(
        torch.nn.Identity(), {}, {}, {"alpha": torch.nn.Parameter(torch.zeros(2, 2))}
    )
    state.step = step
    return state


def begun(steps: int, **search: object) -> Trajectory:
    config = SearchConfig.model_validate({"steps": 12, **search})
    trajectory = Trajectory(LABELS, SearchPlan(config, 12, 0, 1))
    for step in range(1, steps + 1):
        trajectory(state_at(step), {})
    return trajectory


def test_the_peak_rates_of_a_search_stand_in_its_pi_npz(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it went on under a program whose `auto` is another rate."""
    path = tmp_path / "pi.npz"
    rates = []
    for most in (0.3, 0.3, 0.05, 0.05):
        monkeypatch.setattr("nas.search.plan.MOST_ALPHA_LR", most)
        trajectory = begun(5)
        if path.exists():
            trajectory.resume(path, state_at(5))
        trajectory.save(path)
        rates.append(load_pi(path)["alpha_peak_lrs"].tolist())
    assert rates == [[0.3], [0.3], [0.3, 0.05], [0.3, 0.05]]
