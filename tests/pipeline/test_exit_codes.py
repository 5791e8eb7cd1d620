"""How scripts end: where memory runs out one line says what saves it, and the run goes on."""

from pathlib import Path
from typing import Any

import pytest
import torch

import search
from nas.search.step import SearchStep
from pipeline.exit_codes import run_errors, user_errors
from tests.runs import SEARCH, Capture, assert_same, refused, run, settings


def too_much() -> None:
    torch.zeros(2**48)


def far_too_much() -> None:
    torch.zeros(2**62)


def on_a_gpu() -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nGPU 0 has ...")


def in_python() -> None:
    raise MemoryError


@pytest.mark.parametrize("allocate", [too_much, far_too_much, on_a_gpu, in_python])
def test_where_memory_runs_out_one_line_says_what_saves_it(capsys: Capture, allocate: Any) -> None:
    with run_errors() as ending:
        allocate()
    assert ending.code == 3
    with pytest.raises(SystemExit) as stop, user_errors():
        allocate()
    assert stop.value.code == 3
    first, second = capsys.readouterr().err.splitlines()
    assert first == second
    assert first.startswith("out of memory (")
    for remedy in ("micro_batches", "recompute=true", "precision=bfloat16"):
        assert f"run.{remedy}" in first
    assert "lower data.batch" in first


def test_other_errors_of_torch_keep_their_traceback() -> None:
    for context in (run_errors, user_errors):
        with pytest.raises(RuntimeError, match="must match the size"), context():
            torch.zeros(2) + torch.zeros(3)


def test_a_run_that_ran_out_of_memory_goes_on_with_the_remedy(
    searched: Path,
    experiment_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    arguments = [experiment_file, "--run", tmp_path / "hungry"]
    step = SearchStep.__call__

    def greedy(self: SearchStep, state: Any, batch: Any) -> Any:
        if state.step == 16:
            too_much()
        return step(self, state, batch)

    with monkeypatch.context() as patched:
        patched.setattr(SearchStep, "__call__", greedy)
        assert "run.recompute=true" in refused(search, capsys, *arguments, code=3)
    run(search, *arguments, *settings("run.recompute=true"))
    assert "goes on from step " in capsys.readouterr().out
    assert_same(searched / SEARCH, tmp_path / "hungry" / SEARCH)
