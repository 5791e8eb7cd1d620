"""The trackers that an experiment may name, how older files named one, and one that fails."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.runs import Capture
from training.config import RunConfig
from training.trackers import TRACKERS, TrackedPhase


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
