"""Metrics, divergence, and what a stop does."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import search
from nas.search.step import SearchStep
from tests.runs import code_of, settings
from tests.tiny import trained
from training.checkpoint import read_header
from training.distributed import ALONE
from training.hooks import check_finite
from training.signals import Diverged, StopRequest
from training.state import TrainState


def test_a_signal_is_remembered_once_and_a_second_one_interrupts() -> None:
    stop = StopRequest()
    before = signal.getsignal(signal.SIGTERM)
    with stop.listening():
        signal.raise_signal(signal.SIGTERM)
        assert stop.number == signal.SIGTERM
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize("heard_by", ["outer", "inner"])
def test_a_signal_is_known_to_both_of_two_that_listen_inside_of_each_other(heard_by: str) -> None:
    outer, inner = StopRequest(), StopRequest()
    with outer.listening():
        if heard_by == "outer":
            signal.raise_signal(signal.SIGTERM)
        with inner.listening():
            if heard_by == "inner":
                signal.raise_signal(signal.SIGTERM)
    assert (outer.number, inner.number) == (signal.SIGTERM, signal.SIGTERM)


# --- nothing that is not finite is logged, validated or saved -------------------------------------

NAN, INF = float("nan"), float("inf")


def spoil_alpha(state: TrainState) -> None:
    state.parameters["alpha"].data[1, 2] = NAN


def spoil_moment(state: TrainState) -> None:
    weight = state.model.norm.weight
    state.optimisers["weights"].state[weight]["exp_avg_sq"][0] = INF


def spoil_memory(state: TrainState) -> None:
    memory = next(m for m in state.streams["weights"].memory if m is not None)
    memory[0, 0, 0] = -INF


def spoil_loss(state: TrainState) -> None:
    state.loss_sum += INF


def spoil_weight(state: TrainState) -> None:
    state.model.norm.weight.data[0] = INF


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (spoil_weight, r"parameter norm\.weight is not finite"),
        (spoil_alpha, "parameter alpha is not finite"),
        (spoil_moment, r"the optimiser's exp_avg_sq of norm\.weight is not finite"),
        (spoil_memory, r"stream memory\.\d is not finite"),
        (spoil_loss, "the loss is inf nats/token"),
    ],
)
def test_every_part_of_the_state_is_looked_at(
    spoil: Callable[[TrainState], None], said: str
) -> None:
    state = trained(2)
    check_finite(state, 3.0, ALONE)
    for loss, shown in ((NAN, "nan"), (80.0, "80")):
        with pytest.raises(
            Diverged, match=f"diverged at step 2: the loss is {shown} nats.token; lower"
        ):
            check_finite(state, loss, ALONE)
    spoil(state)
    with pytest.raises(Diverged, match=f"diverged at step 2: {said}; lower optimiser.lr"):
        check_finite(state, 3.0, ALONE)


# Spoiled is step 16. What looks next is the log, the validation, or the checkpoint.
@pytest.mark.parametrize(
    ("spoil", "log_every", "validate_every", "checkpoint_every", "found"),
    [
        (spoil_loss, 5, 100, 7, 20),
        (spoil_alpha, 100, 10, 7, 20),
        (spoil_moment, 100, 100, 6, 18),
        (spoil_loss, 100, 100, 6, 18),
    ],
)
def test_what_diverges_between_two_logs_is_never_saved_and_said_again_on_a_resume(
    experiment_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    spoil: Callable[[TrainState], None],
    log_every: int,
    validate_every: int,
    checkpoint_every: int,
    found: int,
) -> None:
    step = SearchStep.__call__

    def spoiled(self: SearchStep, state: TrainState, batch: Any) -> Any:
        metrics = dict(step(self, state, batch))
        if state.step == 15:
            spoil(state)
            if spoil is spoil_loss:
                metrics["loss_nats"] = torch.tensor(INF)
        return metrics

    monkeypatch.setattr(SearchStep, "__call__", spoiled)
    arguments = [experiment_file, "--run", tmp_path / "run"]
    # With all candidates computed the optimiser's first tensor is the same after a resume.
    arguments += settings(
        *("search.estimator=soft", "search.alpha.warmup_fraction=0.25"),
        *(f"run.log_every={log_every}", f"run.validate_every={validate_every}"),
        f"run.checkpoint_every={checkpoint_every}",
    )
    place = tmp_path / "run/search/seed-0"
    lines = []
    for _ in range(2):
        assert code_of(search, *arguments) == 3
        error = capsys.readouterr().err
        lines.append(error.splitlines()[-1])
        assert read_header(place / "last.safetensors")["step"] == 2 * checkpoint_every
        tensors = load_file(place / "last.safetensors")
        assert all(t.isfinite().all() for t in tensors.values())
    assert lines[0].startswith(f"diverged at step {found}: ")
    assert lines[0] == lines[1]
    rows = (place / "metrics.jsonl").read_text()
    assert "NaN" not in rows
    assert "Infinity" not in rows
