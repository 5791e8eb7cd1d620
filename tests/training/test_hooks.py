"""Metrics, divergence, and what a stop does."""

import json
import signal
from pathlib import Path

import pytest
import torch

from tests import tiny
from training.hooks import Diverged, MetricsFile, check_finite
from training.run_dir import claim
from training.signals import StopRequest


def test_rows_after_the_checkpoint_are_dropped_on_a_resume(tmp_path: Path) -> None:
    metrics_file = MetricsFile(tmp_path / "m.jsonl", 0)
    for step in (5, 10, 15):
        metrics_file.append({"kind": "train", "step": step})
    assert [row["step"] for row in MetricsFile(tmp_path / "m.jsonl", 10).rows()] == [5, 10]


def test_a_torn_last_line_is_dropped_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n{"st')
    assert MetricsFile(path, 9).rows() == [{"step": 1}, {"step": 2}]
    assert path.read_text() == '{"step": 1}\n{"step": 2}\n'
    path.write_text('{"step": 1}\nnonsense\n{"step": 2}\n')
    with pytest.raises(ValueError, match=r"m\.jsonl:2: damaged line"):
        MetricsFile(path, 9)


def test_divergence_names_the_step_the_tensor_and_a_remedy() -> None:
    state = tiny.state_of(tiny.supernet())
    state.step = 7
    check_finite(state, 3.0)
    with pytest.raises(Diverged, match=r"step 7: the loss is nan nats; lower optimiser\.lr"):
        check_finite(state, float("nan"))
    with pytest.raises(Diverged, match="the loss is 80 nats"):
        check_finite(state, 80.0)
    with torch.no_grad():
        state.model.norm.weight[0] = float("inf")
    with pytest.raises(Diverged, match=r"parameter norm\.weight is not finite"):
        check_finite(state, 3.0)


def test_a_signal_is_remembered_once_and_a_second_one_interrupts() -> None:
    stop = StopRequest()
    before = signal.getsignal(signal.SIGTERM)
    with stop.listening():
        signal.raise_signal(signal.SIGTERM)
        assert stop.number == signal.SIGTERM
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_folder_belongs_to_one_identity(tmp_path: Path) -> None:
    identity = {"search": {"steps": 5, "tau": {"end": None}}, "corpus": "abc"}
    folder = tmp_path / "phase"
    for text in ("a: 1\n", "other\n"):
        claim(folder, identity, {"experiment.yaml": text})
    assert (folder / "experiment.yaml").read_text() == "a: 1\n"
    changed = {**identity, "search": {"steps": 6, "tau": {"end": 0.1}}}
    with pytest.raises(ValueError, match=r"search\.steps is 5 there and 6 here"):
        claim(folder, changed, {})
    assert json.loads((folder / "identity.json").read_text()) == identity
