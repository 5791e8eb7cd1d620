"""A phase's folder: who may have it; what its log says."""

from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pipeline import cli
from tests import tiny
from tests.double_start import Ending, double_start, others_may_have
from training.config import RunConfig
from training.evaluation import Evaluation
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


def opened_by(trainer: Trainer) -> None:
    with cli.user_errors():
        trainer.open()


def judged(folder: Path, endings_2: list[Ending], names: list[str]) -> None:
    """Exactly one goes on, and the folder is its own; the other says why not in one line."""
    assert sorted(ending.opened for ending in endings_2) == [False, True], endings_2
    winner = [ending.opened for ending in endings_2].index(True)
    loser = endings_2[1 - winner]
    assert endings_2[winner].code == 0, endings_2
    assert loser.code == 2, loser
    lines = [line for line in loser.lines if not line.startswith("files: ")]
    assert len(lines) == 1, lines
    another = names[0] != names[1] and "holds another experiment" in lines[0]
    assert another or lines == [f"{folder}: {TAKEN}"]
    assert names[winner] in (folder / "experiment.yaml").read_text()
    assert names[winner] in (folder / "identity.json").read_text()
    assert names[winner] in (folder / "environment.json").read_text()


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
        starts = [partial(opened_by, replace(trainer, folder=folder)) for trainer in trainers]
        judged(folder, double_start(starts), names)
        assert not list(folder.glob(".*"))


def test_a_phase_that_cannot_be_opened_lets_go(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with closing(trainer_of(folder)) as trainer:
        trainer.open()
    (folder / "last.safetensors").write_text("damaged")
    refused = pytest.raises(ValueError, match=r"last\.safetensors: not a checkpoint")
    with refused, closing(trainer_of(folder)) as broken:
        broken.open()
    assert others_may_have(folder)


def test_a_line_of_the_log_has_the_mean_loss_since_the_line_before(tmp_path: Path) -> None:
    def rising(state: TrainState, batch: Any) -> dict[str, float]:
        state.loss_sum += state.step
        return still(state, batch)

    with closing(trainer_of(tmp_path / "run", steps=6, step=rising)) as trainer:
        trainer.open()
        trainer.run(RunConfig(log_every=4, validate_every=6, checkpoint_every=6))
    rows = [row for row in trainer.metrics_file.rows() if row["kind"] == "train"]
    assert [(row["step"], row["loss_nats"]) for row in rows] == [(4, 2.5), (6, 5.5)]
