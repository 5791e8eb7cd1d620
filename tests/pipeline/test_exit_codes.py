"""How scripts end: where memory runs out one line says what saves it, and the run goes on."""

import sys
from typing import Any

import pytest
import torch

from pipeline.cli import user_errors
from tests.runs import Capture
from training.signals import Diverged, Stopped


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
    with pytest.raises(SystemExit) as stop, user_errors():
        allocate()
    assert stop.value.code == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("out of memory (")
    for remedy in ("micro_batches", "recompute=true", "precision=bfloat16"):
        assert f"run.{remedy}" in line
    assert "lower data.batch" in line


def test_other_errors_of_torch_keep_their_traceback() -> None:
    with pytest.raises(RuntimeError, match="must match the size"), user_errors():
        torch.zeros(2) + torch.zeros(3)


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ValueError("a\nb"), 2, "a\nb"),
        (FileNotFoundError(2, "No such file or directory", "x y"), 2, "x y: No such file or"),
        (OSError("full"), 2, "full"),
        (Diverged("all 3 trainings diverged"), 3, "all 3 trainings diverged"),
        (Stopped(15), 143, "stopped by SIGTERM; the state is saved. Resume with:"),
        (KeyboardInterrupt(), 130, "interrupted; what was written is kept. Resume with:"),
    ],
)
def test_a_known_ending_is_a_line_and_a_code(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, line: str
) -> None:
    """The command that goes on shows no password."""
    url = "sweep.storage=postgresql://u:secret@h/db"
    monkeypatch.setattr(sys, "argv", ["sweep.py", "x.yaml", "--set", url])
    with pytest.raises(SystemExit) as stop, user_errors():
        raise error
    assert stop.value.code == code
    said = capsys.readouterr().err
    assert said.startswith(line)
    assert "secret" not in said
    if "Resume with" in line:
        assert "sweep.py x.yaml --set 'sweep.storage=postgresql://u:***@h/db'" in said
        assert "# put the password in the place of ***" in said


def test_our_own_errors_keep_their_traceback(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TypeError), user_errors():
        raise TypeError
    monkeypatch.setenv("PARNAS_TRACEBACK", "1")
    with pytest.raises(SystemExit), user_errors():
        raise ValueError("x")
    assert "Traceback" in capsys.readouterr().err
