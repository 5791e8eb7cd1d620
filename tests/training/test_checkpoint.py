"""Checkpoints: whole or absent, compared before they are restored, the last two of them kept."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from model import BLOCKS
from tests import tiny
from tests.damage import no_files
from tests.damaged_tensors import CHECKPOINT, MIX, STEPS, state_after, trained
from training import checkpoints as checkpoint_files
from training import tensor_file
from training.checkpoint import _tensors_of, read_checkpoint, save_checkpoint
from training.checkpoints import LAST, PREVIOUS, Checkpoints
from training.config import OptimiserConfig
from training.distributed import ALONE
from training.optim import build_optimiser, rate_of
from training.state import NO_BEST, Best, TrainState
from training.step import Forward, WeightStep
from training.tensor_file import read_tensors, write_tensors


def through_a_file(path: Path, state: TrainState, other: TrainState) -> None:
    save_checkpoint(path, state, "me", ALONE)
    read_checkpoint(path, other, "me", STEPS, ALONE).restore(other)


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
    save_checkpoint(tmp_path / "last.safetensors", state, "me", ALONE)
    random = torch.rand(3)
    read_checkpoint(tmp_path / "last.safetensors", other, "me", STEPS, ALONE).restore(other)
    assert torch.equal(torch.rand(3), random)
    assert (other.step, other.tokens, other.loss_steps) == (4, 32, 4)
    assert (other.elapsed_s, other.best) == (12.5, state.best)
    assert torch.equal(other.loss_sum, state.loss_sum)
    assert_same_tensors(state, other)


def test_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_file, "VERSION", 99)
    save_checkpoint(tmp_path / "a.safetensors", trained(1), "me", ALONE)
    monkeypatch.undo()
    with pytest.raises(ValueError, match="checkpoint version 99, this program reads 3"):
        read_tensors(tmp_path / "a.safetensors")


def test_a_write_that_fails_leaves_the_file_before_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.safetensors"
    save_checkpoint(path, trained(1), "me", ALONE)
    before = path.read_bytes()

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left .* needed, .* free\): '.*a\.safetensors'"):
        save_checkpoint(path, trained(2), "me", ALONE)
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
    read_header = checkpoint_files.read_header

    def late(path: Path) -> dict[str, object]:
        (tmp_path / LAST).unlink(missing_ok=True)
        return read_header(path)

    monkeypatch.setattr(checkpoint_files, "read_header", late)
    assert "step 3" in checkpoints.newest()


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
    assert other.best == state.best == NO_BEST


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


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    return Checkpoints(tmp_path, "me", STEPS)


@pytest.mark.parametrize("nth", range(6))
def test_what_is_no_file_is_refused_and_the_one_before_is_taken(
    checkpoints: Checkpoints, tmp_path: Path, nth: int
) -> None:
    for _ in range(2):
        checkpoints.save(state_after(3))
    damage = no_files(CHECKPOINT, tmp_path / LAST)
    for _ in range(nth + 1):
        next(damage)
    found = checkpoints.find(state_after(1))
    assert found is not None
    assert found.header.step == 3
    assert found.refused is not None
    assert found.refused.startswith("last.safetensors: ")
    checkpoints.set_aside()
    checkpoints.save(state_after(1))
    steps = [read_tensors(tmp_path / name)[1]["step"] for name in (LAST, PREVIOUS)]
    assert steps == [1, 3]


def test_the_last_two_are_kept_and_a_good_last_one_is_taken(
    checkpoints: Checkpoints, tmp_path: Path
) -> None:
    assert checkpoints.find(state_after(1)) is None
    for steps in (1, 1, 3):
        checkpoints.save(state_after(steps))
    assert read_tensors(tmp_path / PREVIOUS)[1]["step"] == 1
    (tmp_path / PREVIOUS).write_bytes(b"nonsense")
    found = checkpoints.find(state_after(1))
    assert found is not None
    assert (found.header.step, found.refused) == (3, None)
    assert sorted(path.name for path in tmp_path.iterdir()) == [LAST, PREVIOUS]


@pytest.mark.parametrize("failing", [1, 2])
def test_a_rename_that_fails_leaves_a_whole_checkpoint(
    checkpoints: Checkpoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    checkpoints.save(state_after(1))
    checkpoints.save(state_after(3))
    calls, replace = [], os.replace

    def failing_once(*names: Any) -> None:
        calls.append(names)
        if len(calls) == failing:
            raise OSError(5, "Input/output error")
        replace(*names)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", failing_once)
        with pytest.raises(OSError, match=r"Input/output error: '.*last\.safetensors'"):
            checkpoints.save(state_after(1))
    found = checkpoints.find(state_after(1))
    assert found is not None
    assert found.header.step == 3
    assert not list(tmp_path.glob(".*"))


def header_end(content: bytes) -> int:
    return 8 + int.from_bytes(content[:8], "little")


def test_our_files_are_laid_out_as_the_librarys_own(tmp_path: Path) -> None:
    tensors = {
        "a": torch.arange(3),
        "b": torch.randn(2, 3),
        "c": torch.zeros((), dtype=torch.float64),
        "d": torch.zeros(0, 4),
        "e": torch.randn(5).bfloat16(),
        "f": torch.tensor([True, False, True]),
        "g": torch.randint(255, (7,), dtype=torch.uint8),
        "h": torch.randn(4, 3).T,
    }
    write_tensors(tmp_path / "ours", tensors, {"x": 1})
    back, header = read_tensors(tmp_path / "ours")
    assert header == {"version": tensor_file.VERSION, "x": 1}
    assert all(torch.equal(back[name], tensors[name]) for name in tensors)
    del tensors["f"]  # of two types of one width the library writes the wider range first
    write_tensors(tmp_path / "ours", tensors, {"x": 1})
    theirs = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(theirs, tmp_path / "theirs", metadata={"x": "y"})
    one, two = ((tmp_path / name).read_bytes() for name in ("ours", "theirs"))
    assert one[header_end(one) :] == two[header_end(two) :]
    layouts = [json.loads(content[8 : header_end(content)]) for content in (one, two)]
    for layout in layouts:
        del layout["__metadata__"]
    assert layouts[0] == layouts[1]
