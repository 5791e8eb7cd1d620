"""A phase's folder: who may have it; what its log says."""

import multiprocessing
import signal
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests import tiny
from training.checkpoint import Checkpoints
from training.config import RunConfig
from training.evaluation import Evaluation
from training.signals import Stopped
from training.state import TrainState
from training.trainer import Trainer

TAKEN = "another process is training here; wait for it or use another --run"


class Batches:
    """A text that nobody looks at."""

    def batch(self, index: int) -> Any:
        return None


def nats(value: float) -> Evaluation:
    return Evaluation(nats=value, tokens=1, bytes=None, words=None)


def still(state: TrainState, batch: Any) -> dict[str, float]:
    """A step that trains nothing."""
    state.loss_sum += 1.0
    state.loss_steps += 1
    state.tokens += 1
    return {"loss_nats": 1.0, "grad_norm": 0.0, "lr": 0.0, "tokens": 1}


def trainer_of(folder: Path, **parts: Any) -> Trainer:
    """A phase of a tiny model whose step does nothing."""
    found: dict[str, Any] = {
        "title": "tiny",
        "folder": folder,
        "identity": {"search": {"steps": 4}},
        "files": {"experiment.yaml": "seed: 0\n", "environment.json": "{}\n"},
        "summary": "",
        "steps": 4,
        "state": parts.get("state") or tiny.state_of(tiny.supernet("dense", slots=1)),
        "batches": Batches(),
        "step": still,
        "nets": {"model": lambda state: nats(1.0)},
    }
    return Trainer(**{**found, **parts})


def answers(starts: Sequence[Trainer]) -> list[str]:
    """What processes are told that open a folder at the same moment; nothing where they have it.

    Who has it keeps it until every other one has had its answer.
    """
    fork = multiprocessing.get_context("fork")
    ready, answered = (fork.Barrier(len(starts), timeout=300) for _ in range(2))
    told = fork.SimpleQueue()

    def start(number: int) -> None:
        ready.wait()
        try:
            starts[number].open()
            told.put((number, ""))
        except ValueError as error:
            told.put((number, str(error)))
        answered.wait()

    children = [fork.Process(target=start, args=(number,)) for number in range(len(starts))]
    for child in children:
        child.start()
    for child in children:
        child.join()
    return [words for _, words in sorted(told.get() for _ in starts)]


@pytest.mark.parametrize("different", [False, True])
@pytest.mark.parametrize("rounds", [6, pytest.param(50, marks=pytest.mark.slow)])
def test_of_two_starts_at_once_one_goes_on_and_the_folder_is_its_own(
    tmp_path: Path, rounds: int, different: bool
) -> None:
    names = [f"name-{n * different}" for n in range(2)]
    trainers = [
        trainer_of(
            tmp_path,
            identity={"search": {"name": name}},
            files={"experiment.yaml": f"{name}\n", "environment.json": f"{name}\n"},
        )
        for name in names
    ]
    for number in range(rounds):
        folder = tmp_path / f"run-{number}"
        said = answers([replace(trainer, folder=folder) for trainer in trainers])
        winner = said.index("")
        assert said[1 - winner] == f"{folder}: {TAKEN}"
        for file in ("experiment.yaml", "identity.json", "environment.json"):
            assert names[winner] in (folder / file).read_text()
        assert not list(folder.glob(".*"))


def test_a_phase_that_cannot_be_opened_lets_go(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with closing(trainer_of(folder)) as trainer:
        trainer.open()
    (folder / "last.safetensors").write_text("damaged")
    refused = pytest.raises(ValueError, match=r"last\.safetensors: not a checkpoint")
    with refused, closing(trainer_of(folder)) as broken:
        broken.open()
    (said,) = answers([trainer_of(folder)])
    assert "not a checkpoint" in said, "the lock is asked for first"


def test_a_line_of_the_log_has_the_mean_loss_since_the_line_before(tmp_path: Path) -> None:
    def rising(state: TrainState, batch: Any) -> dict[str, float]:
        state.loss_sum += state.step
        return still(state, batch)

    with closing(trainer_of(tmp_path / "run", steps=6, step=rising)) as trainer:
        trainer.open()
        trainer.run(RunConfig(log_every=4, validate_every=6, checkpoint_every=6))
    rows = [row for row in trainer.metrics_file.rows() if row["kind"] == "train"]
    assert [(row["step"], row["loss_nats"]) for row in rows] == [(4, 2.5), (6, 5.5)]


def test_a_signal_during_the_last_checkpoint_ends_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = Checkpoints.save

    def slow(self: Checkpoints, state: TrainState) -> None:
        save(self, state)
        if state.step == 4:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(Checkpoints, "save", slow)
    with closing(trainer_of(tmp_path / "run")) as trainer:
        trainer.open()
        with pytest.raises(Stopped):
            trainer.run(RunConfig())
    assert trainer.state.step == 4
