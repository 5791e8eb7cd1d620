"""The trackers that an experiment may name, how older files named one, and one that fails."""

import sys
from pathlib import Path
from types import ModuleType
from typing import get_args

import pytest

from pipeline import cli
from pipeline.experiment import load_experiment
from tests.runs import Capture
from training.config import RunConfig
from training.trackers import TRACKERS, TrackedPhase


def test_the_schema_names_the_registered_trackers() -> None:
    (names, _) = get_args(RunConfig.model_fields["trackers"].annotation)
    assert get_args(names) == tuple(TRACKERS)


def test_the_flags_add_up(experiment_file: Path) -> None:
    parser = cli.parser("doc")
    cli.add_trackers(parser)
    flags = ["--wandb", "--set", "run.seed=3", "--tensorboard", "--wandb"]
    arguments = parser.parse_args([str(experiment_file), *flags])
    run = load_experiment(experiment_file, arguments.set).run
    assert (run.seed, run.trackers) == (3, ("wandb", "tensorboard"))
    assert parser.parse_args([str(experiment_file)]).set == []


class FailingRun:
    """A run of W&B whose first row is the last one that works."""

    def __init__(self) -> None:
        self.rows: list[int] = []

    def log(self, values: dict[str, float], step: int) -> None:
        if self.rows:
            raise LookupError("the service is gone")
        self.rows.append(step)

    def finish(self) -> None:
        raise AssertionError("asked again")


def test_a_failure_of_wandb_is_said_once_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    run, package = FailingRun(), ModuleType("wandb")
    package.Error = LookupError  # type: ignore[attr-defined]
    package.Settings = RunConfig  # type: ignore[attr-defined]
    package.init = lambda **settings: run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", package)
    tracker = TRACKERS["wandb"](TrackedPhase(tmp_path, "x", "y", {}))(0)
    for step in (5, 10, 15):
        tracker.log(step, {"train/loss_nats": 1.0})
    tracker.close()
    assert run.rows == [5]
    (warning,) = capsys.readouterr().err.splitlines()
    assert warning == "warning: wandb: nothing more is logged there: the service is gone"
