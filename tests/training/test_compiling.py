"""Slots through torch's compiler: the same numbers but for rounding, and an exact resume."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import retrain
from tests import tiny
from tests.nas.search.test_step import FORWARD
from tests.training.test_recompute import search_step
from training.runtime import compiled_run


def losses(estimator: str, data: str, **options: object) -> list[torch.Tensor]:
    """Losses and the last gradients of a search without dropout, in float64."""
    model = tiny.supernet("attention", "dense", "identity", slots=2)
    step, state = search_step(model, replace(FORWARD, **options), estimator, data=data)
    found = []
    for state.step in range(6):
        metrics = step(state, tiny.batch(3, seed=state.step, first=state.step == 0))
        found.append(torch.as_tensor(metrics["loss_nats"]))
    trained = [*model.parameters(), state.parameters["alpha"]]
    return found + [p.grad for p in trained if p.grad is not None]


# What the compiler meets of an estimator: all candidates, one weighed, two, one as it is. Others
# mix all candidates as soft does.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("estimator", "data"),
    [("soft", "shared"), *((name, "next_batch") for name in ("single_path", "two_path", "spos"))],
)
def test_a_search_compiled_gives_the_numbers_of_one_that_is_not(estimator: str, data: str) -> None:
    run_slot = compiled_run(torch.device("cpu"))
    wanted = losses(estimator, data)
    # That soft's slots are computed again is tested below, with dropout.
    for recompute in (False,) if estimator == "soft" else (False, True):
        found = losses(estimator, data, run_slot=run_slot, recompute=recompute)
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-10)


@pytest.mark.slow
def test_compiled_spans_are_those_that_are_not() -> None:
    """A compiler may not look at the spans, which say what is computed: it computes all keys."""
    given = {"kind": "adaptive_span", "span": 6, "ramp": 2, "first_span": 0.4}
    as_there = {"label": "as_there", "positions": "learned", "sees_itself": False}
    spans, others = tiny.candidates(given, {**given, **as_there})
    model, batch = tiny.language_model([[spans], [others]]), tiny.batch(3)
    ways = {"run_slot": compiled_run(torch.device("cpu"))}, {}

    def outcome(way: dict[str, Any]) -> list[torch.Tensor]:
        model.zero_grad()
        state = model.initial_state(3)
        for each in ({}, way):
            h_BTD, state, aux = model(batch.input_BT, state, **each)
        (model.nll(h_BTD, batch.target_BT).mean() + aux).backward()
        return [h_BTD, *(p.grad for p in model.parameters() if p.grad is not None)]

    found, wanted = map(outcome, ways)
    assert len(found) == len(wanted) > 5
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-10)


def test_a_missing_compiler_is_one_line(
    experiment_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from torch._inductor.exc import InvalidCxxCompiler

    def none() -> str:
        raise InvalidCxxCompiler

    monkeypatch.setattr("torch._inductor.cpp_builder.get_cpp_compiler", none)
    arguments = [str(experiment_file), "--run", str(tmp_path / "run"), "--layout", "a d a d"]
    with pytest.raises(SystemExit, match="2"):
        retrain.main([*arguments, "--set", "run.compile=true"])
    (line,) = capsys.readouterr().err.splitlines()[-1:]
    assert "run.compile: torch finds no C++ compiler (g++, or what CXX names); install it" in line
