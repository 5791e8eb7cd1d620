"""Checkpoints are whole or absent, refuse what is not theirs, and hold no pickle."""

import os
from pathlib import Path

import pytest
import torch

from tests import tiny
from training import checkpoint, tensor_file
from training.checkpoint import (
    LAST,
    PREVIOUS,
    Checkpoints,
    read_checkpoint,
    save_checkpoint,
)
from training.config import OptimiserConfig
from training.optim import build_optimiser, rate_of
from training.state import Best, TrainState
from training.step import Forward, WeightStep
from training.tensor_file import read_tensors

STEPS = 50


def load_checkpoint(path: Path, state: TrainState, identity: str) -> None:
    read_checkpoint(path, state, identity, STEPS).restore(state)


MIX = [[(0, None)], [(1, None)], [(2, None)]]


def trained(steps: int, *, seed: int = 0) -> TrainState:
    """A state after some steps of AdamW with single-path draws, so that moments differ."""
    model = tiny.supernet(seed=seed)
    config = OptimiserConfig(warmup_steps=0)
    state = tiny.state_of(model, parameters={"alpha": torch.nn.Parameter(torch.zeros(3, 3))})
    state.optimisers["weights"] = build_optimiser(model, config)
    step = WeightStep(Forward(torch.device("cpu"), "float32"), config, rate_of(config, STEPS))
    for index in range(steps):
        step(state, tiny.batch(seed=index), lambda: MIX)
        state.step += 1
    return state


def test_everything_comes_back(tmp_path: Path) -> None:
    state = trained(4)
    state.elapsed_s, state.best = 12.5, Best(nats_per_token=3.25, step=2)
    torch.manual_seed(7)
    save_checkpoint(tmp_path / "last.safetensors", state, "me")
    random = torch.rand(3)
    other = trained(1, seed=5)
    load_checkpoint(tmp_path / "last.safetensors", other, "me")
    assert torch.equal(torch.rand(3), random)
    assert (other.step, other.tokens, other.loss_steps) == (4, 32, 4)
    assert (other.elapsed_s, other.best) == (12.5, state.best)
    assert torch.equal(other.loss_sum, state.loss_sum)
    mine, theirs = state.model.state_dict(), other.model.state_dict()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    one, two = (s.optimisers["weights"].state_dict()["state"] for s in (state, other))
    assert one.keys() == two.keys()
    for index in one:
        for slot in one[index]:
            assert torch.equal(one[index][slot], two[index][slot])
    one, two = state.streams["weights"].tensors(), other.streams["weights"].tensors()
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_a_best_step_that_is_not_there_yet_comes_back(tmp_path: Path) -> None:
    state = trained(1)
    save_checkpoint(tmp_path / "a.safetensors", state, "me")
    load_checkpoint(tmp_path / "a.safetensors", other := trained(2), "me")
    assert other.best.nats_per_token == float("inf")


def test_another_experiment_is_refused(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "a.safetensors", trained(1), "me")
    with pytest.raises(ValueError, match=r"a\.safetensors: belongs to another experiment"):
        load_checkpoint(tmp_path / "a.safetensors", trained(1), "you")


@pytest.mark.parametrize("keep", [0.0, 0.01, 0.5, 0.999])
def test_a_truncated_file_is_refused_by_name(tmp_path: Path, keep: float) -> None:
    path = tmp_path / "a.safetensors"
    save_checkpoint(path, trained(1), "me")
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep)])
    with pytest.raises(ValueError, match=r"a\.safetensors: damaged checkpoint"):
        load_checkpoint(path, trained(1), "me")


def test_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_file, "VERSION", 99)
    save_checkpoint(tmp_path / "a.safetensors", trained(1), "me")
    monkeypatch.undo()
    with pytest.raises(ValueError, match="checkpoint version 99, this program reads 2"):
        read_tensors(tmp_path / "a.safetensors")


def test_a_write_that_fails_leaves_the_file_before_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.safetensors"
    save_checkpoint(path, trained(1), "me")
    before = path.read_bytes()

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left .* needed, .* free\): '.*a\.safetensors'"):
        save_checkpoint(path, trained(2), "me")
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["a.safetensors"]


def checkpoints_of(folder: Path) -> Checkpoints:
    """A folder with the checkpoints of steps 3 and 4."""
    checkpoints = Checkpoints(folder, "identity", steps=9)
    state = tiny.state_of(tiny.supernet())
    for state.step in (3, 4):
        checkpoints.save(state)
    return checkpoints


def test_the_newest_is_the_last_whole_one(tmp_path: Path) -> None:
    checkpoints = checkpoints_of(tmp_path)
    assert "step 4" in checkpoints.newest()
    (tmp_path / LAST).write_bytes(b"damaged")
    assert checkpoints.newest() == (
        f"the last whole checkpoint is that of step 3 ({tmp_path / PREVIOUS})"
    )
    (tmp_path / PREVIOUS).unlink()
    assert checkpoints.newest() == "there is no checkpoint yet, so it begins again at step 0"


def test_a_checkpoint_that_is_renamed_between_two_looks_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = checkpoints_of(tmp_path)
    read_header = checkpoint.read_header

    def late(path: Path) -> dict[str, object]:
        (tmp_path / LAST).unlink(missing_ok=True)
        return read_header(path)

    monkeypatch.setattr(checkpoint, "read_header", late)
    assert "step 3" in checkpoints.newest()
