"""Checkpoints: whole or absent, and everything in them comes back."""

import os
from collections.abc import Mapping
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor

from model import BLOCKS
from tests import tiny
from tests.disk import Killed, KilledProcess
from tests.tiny import STEPS, trained
from tests.training.test_trainer import nats, still, trainer_of
from training.checkpoint import LAST, Checkpoints, _tensors_of, read_header
from training.config import OptimiserConfig, RunConfig
from training.distributed import ALONE
from training.optim import build_optimiser, rate_of
from training.state import Best, TrainState
from training.step import Forward, WeightStep
from training.trainer import Trainer


def restore(folder: Path, state: TrainState) -> None:
    checkpoint = Checkpoints(folder).find()
    assert checkpoint is not None
    checkpoint.restore(state)


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
    Checkpoints(tmp_path).save(state)
    random = torch.rand(3)
    restore(tmp_path, other)
    assert torch.equal(torch.rand(3), random)
    assert (other.step, other.tokens, other.loss_steps) == (4, 32, 4)
    assert (other.elapsed_s, other.best) == (12.5, state.best)
    assert torch.equal(other.loss_sum, state.loss_sum)
    assert_same_tensors(state, other)


def test_processes_that_see_different_checkpoints_are_refused(tmp_path: Path) -> None:
    """Of machines whose run folders are two: each would go on from another step."""
    ranks = Mock(rank=0, all_say=lambda step: [step, 500])
    with pytest.raises(ValueError, match=r"different checkpoints there; all machines must see the"):
        Checkpoints(tmp_path, ranks=ranks).find()


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
        Checkpoints(tmp_path).save(state)
        restore(tmp_path, other)
        go_on(state, 3)
        go_on(other, 3)
        assert_same_tensors(state, other)
        assert state.model.describe() == other.model.describe()


BEST_STEPS = 6
CONFIG = RunConfig(log_every=4, validate_every=1, checkpoint_every=2)
# What a validation says of each step, and of every step after an inexact resume.
NATS = {1: 5.0, 2: 9.0, 3: 4.0, 4: 3.0, 5: 2.0, 6: 9.0}
WORSE = dict.fromkeys(NATS, 9.5)


class Training:
    """Processes that train in one folder; each step's weights are remembered."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.weight_of: dict[int, Tensor] = {}

    def trainer(self, by_step: Mapping[int, float], stride: float) -> Trainer:
        def step(state: TrainState, batch: Any) -> Any:
            with torch.no_grad():
                state.model.norm.weight.add_(stride)
            self.weight_of[state.step + 1] = state.model.norm.weight.clone()
            return still(state, batch)

        nets = {"model": lambda state: nats(by_step[state.step])}
        state = tiny.state_of(tiny.supernet("dense", slots=1))
        return trainer_of(self.folder, steps=BEST_STEPS, step=step, nets=nets, state=state)

    def run(self, by_step: Mapping[int, float] = NATS, stride: float = 1.0) -> Trainer:
        """One process, to its end."""
        with closing(self.trainer(by_step, stride)) as trainer:
            trainer.open()
            trainer.run(CONFIG)
        return trainer

    def run_killed(self, n: int, by_step: Mapping[int, float] = NATS, stride: float = 1.0) -> bool:
        """One process, killed before its n-th change of the disk; whether it came to that."""
        with KilledProcess(self.folder, n).installed() as disk, suppress(Killed):
            self.run(by_step, stride)
        return disk.failed

    def ends_well(self, trainer: Trainer) -> None:
        """The weights of the best step are those it had, and no others are kept."""
        best = trainer.state.best.step
        trainer.take_best()
        assert torch.equal(trainer.state.model.norm.weight, self.weight_of[best])
        named = read_header(self.folder / LAST)["best"]["step"]
        assert weights(self.folder) == {f"best-{named}.safetensors"}
        assert not list(self.folder.glob(".*"))


def weights(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("best*")}


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is flushed, and nobody asks git and the packages for their versions."""
    monkeypatch.setattr(os, "fsync", lambda number: None)
    facts = dict.fromkeys(("torch", "processor", "device", "threads", "commit"))
    monkeypatch.setattr("training.run_dir._facts", lambda device: facts)


def test_killed_anywhere_and_never_better_again_a_run_has_the_best_of_its_checkpoint(
    tmp_path: Path,
) -> None:
    for moment in count(1):
        training = Training(tmp_path / str(moment))
        if not training.run_killed(moment):
            break
        training.ends_well(training.run(WORSE, stride=0.5))
    assert moment > 60


def test_better_validations_between_checkpoints_leave_no_heap_of_weights(tmp_path: Path) -> None:
    training = Training(tmp_path / "run")
    heaps: list[set[str]] = []
    with closing(training.trainer({step: 10.0 - step for step in NATS}, 1.0)) as trainer:
        trainer.recorders = [lambda state, metrics: heaps.append(weights(training.folder))]
        trainer.open()
        trainer.run(CONFIG.model_copy(update={"checkpoint_every": 4}))
    # What stands there when a step begins: the newest best, and what the checkpoints name.
    steps = [{int(name.split("-")[1].split(".")[0]) for name in heap} for heap in heaps]
    assert steps == [set(), {1}, {2}, {3}, {4}, {4, 5}]
    assert weights(training.folder) == {"best-6.safetensors"}


def test_the_last_net_decides_which_step_is_best_and_of_equal_ones_the_first(
    tmp_path: Path,
) -> None:
    by_step = {1: 5.0, 2: 3.0, 3: 3.0, 4: 4.0, 5: 3.5, 6: 4.0}
    with closing(Training(tmp_path / "run").trainer(by_step, 1.0)) as trainer:
        trainer.nets = {"soft": lambda state: nats(1.0 / state.step), **trainer.nets}
        trainer.open()
        trainer.run(CONFIG)
    assert trainer.state.best == Best(nats_per_token=3.0, step=2)
