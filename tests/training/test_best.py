"""The weights of the best step: there whenever the run was killed, and however it goes on."""

import os
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests import tiny
from tests.disk import Killed, KilledProcess
from tests.training.test_trainer import nats, still, trainer_of
from training.checkpoint import LAST, read_header
from training.config import RunConfig
from training.state import TrainState
from training.trainer import Trainer

STEPS = 6
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
        return trainer_of(self.folder, steps=STEPS, step=step, nets=nets, state=state)

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


def killed_at_each(folder: Path) -> Iterator[Training]:
    """A run that was killed, for each moment there is."""
    n = 1
    while True:
        training = Training(folder / str(n))
        if not training.run_killed(n):
            break
        yield training
        n += 1
    assert n > 60


def test_killed_anywhere_and_never_better_again_a_run_has_the_best_of_its_checkpoint(
    tmp_path: Path,
) -> None:
    for training in killed_at_each(tmp_path):
        training.ends_well(training.run(WORSE, stride=0.5))


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
