"""Checkpoints: whole or absent, and everything in them comes back."""

import os
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from model import BLOCKS
from tests import tiny
from tests.tiny import MIX, STEPS, trained
from training.checkpoint import (
    LAST,
    Checkpoints,
    _tensors_of,
    read_checkpoint,
    read_header,
    save_checkpoint,
)
from training.config import OptimiserConfig
from training.distributed import ALONE
from training.optim import build_optimiser, rate_of
from training.state import Best, TrainState
from training.step import Forward, WeightStep


def through_a_file(path: Path, state: TrainState, other: TrainState) -> None:
    save_checkpoint(path, state, "me", ALONE)
    read_checkpoint(path, "me", ALONE).restore(other)


def assert_same_tensors(state: TrainState, other: TrainState) -> None:
    """Weights, moments, memories, sum of losses and random numbers."""
    one, two = (_tensors_of(each, ALONE) for each in (state, other))
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_everything_comes_back(tmp_path: Path) -> None:
    state = trained(4)
    state.elapsed_s, state.best = 12.5, Best(nats_per_token=3.25, step=2)
    other = trained(1, seed=5)
    torch.manual_seed(7)
    save_checkpoint(tmp_path / LAST, state, "me", ALONE)
    random = torch.rand(3)
    read_checkpoint(tmp_path / LAST, "me", ALONE).restore(other)
    assert torch.equal(torch.rand(3), random)
    assert (other.step, other.tokens, other.loss_steps) == (4, 32, 4)
    assert (other.elapsed_s, other.best) == (12.5, state.best)
    assert torch.equal(other.loss_sum, state.loss_sum)
    assert_same_tensors(state, other)


def test_a_write_that_fails_leaves_the_file_before_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.safetensors"
    save_checkpoint(path, trained(1), "me", ALONE)
    before = path.read_bytes()

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left .* MB free\): '.*a\.safetensors'"):
        save_checkpoint(path, trained(2), "me", ALONE)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["a.safetensors"]


def test_the_newest_is_the_last_one(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, "identity")
    assert checkpoints.find() is None
    assert checkpoints.newest() == "there is no checkpoint yet, so it begins again at step 0"
    state = tiny.state_of(tiny.supernet())
    for state.step in (3, 4):
        checkpoints.save(state)
    assert (
        checkpoints.newest() == f"the last whole checkpoint is that of step 4 ({tmp_path / LAST})"
    )
    assert [path.name for path in tmp_path.iterdir()] == [LAST]


def test_what_cannot_be_used_is_refused_by_name(tmp_path: Path) -> None:
    path, checkpoints = tmp_path / LAST, Checkpoints(tmp_path, "me")
    checkpoints.save(trained(1))
    whole = path.read_bytes()
    with pytest.raises(ValueError, match=r"last\.safetensors: belongs to another experiment"):
        Checkpoints(tmp_path, "you").find()
    for content in (b"", whole[: len(whole) // 2], b"x" * 99):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"last\.safetensors: not a checkpoint"):
            checkpoints.find()
    save_file({"x": torch.zeros(1)}, path)
    with pytest.raises(ValueError, match=r"last\.safetensors: not a checkpoint"):
        checkpoints.find()


def test_tied_weights_are_saved_and_come_back(tmp_path: Path) -> None:
    state, other = (tiny.state_of(tiny.supernet(seed=seed)) for seed in (0, 1))
    for each in (state, other):
        each.multipliers = {name: each.loss_sum for name in ("a", "b")}
    through_a_file(tmp_path / LAST, state, other)
    assert_same_tensors(state, other)
    assert read_header(tmp_path / LAST)["best"] == asdict(Best())


@pytest.mark.parametrize(
    ("kind", "momentum"),
    [(kind, None) for kind in ("adamw", "adam", "lamb", "adagrad", "sgd")] + [("sgd", 0.9)],
)
def test_every_optimiser_comes_back(tmp_path: Path, kind: str, momentum: float | None) -> None:
    config = OptimiserConfig.model_validate({"kind": kind, "momentum": momentum, "warmup_steps": 0})

    def made(steps: int) -> TrainState:
        state = tiny.state_of(tiny.supernet())
        state.optimisers["weights"] = build_optimiser(state.model, config)
        step = WeightStep(Forward(torch.device("cpu"), "float32"), config, rate_of(config, STEPS))
        for index in range(steps):
            step(state, tiny.batch(seed=index), lambda: MIX)
            state.step += 1
        return state

    state, other = made(2), made(0)
    through_a_file(tmp_path / "a.safetensors", state, other)
    assert_same_tensors(state, other)
    assert other.best == state.best == Best()


@pytest.mark.parametrize("kind", BLOCKS)
def test_law_8_every_kind_goes_on_from_a_file_as_if_never_cut(tmp_path: Path, kind: str) -> None:
    """Also where the candidate is drawn every other time, and loses what it carried."""
    config = OptimiserConfig(kind="adamw", lr=0.05, warmup_steps=0)
    step = WeightStep(Forward(torch.device("cpu"), "float32"), config, rate_of(config, STEPS))

    def made() -> TrainState:
        state = tiny.state_of(tiny.supernet("attention", {"kind": kind, "label": "other"}))
        state.optimisers["weights"] = build_optimiser(state.model, config)
        return state

    def go_on(state: TrainState, steps: int) -> None:
        def mix() -> list[list[tuple[int, None]]]:
            return [[((state.step + slot) // 2 % 2, None)] for slot in range(3)]

        for _ in range(steps):
            step(state, tiny.batch(seed=state.step), mix)
            state.step += 1

    state, other = made(), made()
    for before in (3, 1, 2):
        go_on(state, before)
        through_a_file(tmp_path / "a.safetensors", state, other)
        go_on(state, 3)
        go_on(other, 3)
        assert_same_tensors(state, other)
        assert state.model.describe() == other.model.describe()
