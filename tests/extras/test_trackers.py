"""What the trackers write is what a reader of their files finds, once for each step."""

from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import search
from tests.runs import SEARCH, assert_same, killed_after, rows, run
from training.trackers import TrackedPhase, Wandb

TRACKED = ("--set", "run.trackers=[tensorboard, wandb]")


@pytest.fixture
def resumed(
    experiment_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: Path
) -> Path:
    """A tracked search that was killed in step 17, after a checkpoint of 14, and gone on with."""
    monkeypatch.delenv("WANDB_MODE", raising=False)
    arguments = [experiment_file, "--run", tmp_path / "run", *TRACKED]
    killed_after(16, search, *arguments)
    run(search, *arguments)
    folder = tmp_path / "run" / SEARCH
    assert_same(undisturbed / SEARCH, folder)
    return folder


def test_a_training_ends_though_its_numbers_reach_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    tracker = Wandb(TrackedPhase(tmp_path, "a", "b", {}), 0)
    assert 0 < tracker._run.settings.finish_timeout < 3600
    tracker.close()


def test_both_trackers_have_every_number_once_after_a_resume(resumed: Path) -> None:
    metrics = rows(resumed / "metrics.jsonl")
    losses = {row["step"]: row["loss_nats"] for row in metrics if row["kind"] == "train"}
    assert sorted(losses) == [5, 10, 15, 20, 25, 30]

    board = EventAccumulator(str(resumed / "tensorboard"))
    board.Reload()
    points = [(event.step, event.value) for event in board.Scalars("train/loss_nats")]
    assert points == [(step, pytest.approx(loss)) for step, loss in losses.items()]
    onehot = [event.step for event in board.Scalars("valid_onehot/bits_per_byte")]
    assert onehot == [20, 30], "not before alpha moves"

    first, second = sorted(resumed.glob("wandb/offline-run-*/*.wandb"), key=lambda p: p.parent)
    assert first.name == second.name, "one run of W&B goes on"
