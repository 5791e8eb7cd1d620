"""How scripts end: where memory runs out one line says what saves it, and the run goes on."""

import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

import derive
import retrain
import search
from pipeline import jobs
from pipeline.cli import user_errors
from tests.runs import LAYOUT, Capture, refused, run, run_jobs_here, settings
from training.signals import Diverged, Stopped
from training.step import WeightStep

FULL = f"CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has {'a long line of facts, ' * 20}"
FEW = ("derive.method=trained", "derive.top=1", "derive.trainings.seeds=1", "model.n_blocks=2")
# What a worker is, with too little memory.
WORKER = "import sys; from pipeline import jobs; from tests.pipeline import test_exit_codes; "
WORKER += "test_exit_codes.fill(); sys.exit(jobs.main(sys.argv[1:]))"


def fill() -> None:
    """From now on a step of whole batches does not fit behind the tenth."""
    step = WeightStep.__call__

    def called(self: WeightStep, state: Any, *rest: Any) -> Any:
        if state.step >= 10 and self.forward.micro_batches == 1:
            raise torch.OutOfMemoryError(FULL)
        return step(self, state, *rest)

    WeightStep.__call__ = called  # type: ignore[method-assign]


TOO_MUCH = {
    "too much": lambda: torch.zeros(2**48),
    "far too much": lambda: torch.zeros(2**62),
    "on a GPU": Mock(side_effect=torch.OutOfMemoryError(FULL)),
    "in Python": Mock(side_effect=MemoryError),
}


@pytest.mark.parametrize("allocate", TOO_MUCH.values(), ids=TOO_MUCH)
def test_where_memory_runs_out_one_line_says_what_saves_it(capsys: Capture, allocate: Any) -> None:
    with pytest.raises(SystemExit) as stop, user_errors():
        allocate()
    assert stop.value.code == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("out of memory (")
    for remedy in ("micro_batches", "recompute=true", "precision=bfloat16"):
        assert f"run.{remedy}" in line
    assert "lower data.batch" in line


@pytest.mark.parametrize(
    ("script", "more"), [(search, ()), (retrain, LAYOUT), (derive, settings(*FEW))]
)
def test_where_memory_runs_out_in_a_step_the_remedy_resumes(
    experiment_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture,
    script: Any, more: Any,
) -> None:  # fmt: skip
    """Also where it does in a worker of a derivation."""
    monkeypatch.setattr(WeightStep, "__call__", WeightStep.__call__)
    monkeypatch.setattr(jobs, "_CHILD", (sys.executable, "-c", WORKER))
    fill()
    arguments = [experiment_file, "--run", tmp_path / "run", *more, *settings("run.figures=false")]
    line = refused(script, capsys, *arguments, code=3)
    assert "out of memory (CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0" in line
    assert line.endswith("run.precision=bfloat16, in another --run directory")
    monkeypatch.setattr("pipeline.layout_scores.run_all", run_jobs_here)
    run(script, *arguments, *settings("run.micro_batches=2"))
    logs = [path.read_text() for path in tmp_path.glob("run/**/train.log")]
    (log,) = (log for log in logs if "resumes from step 7 of " in log)
    assert "micro_batches was 1, is 2" in log


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


def test_our_own_errors_and_others_of_torch_keep_their_traceback(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TypeError), user_errors():
        raise TypeError
    with pytest.raises(RuntimeError, match="must match the size"), user_errors():
        torch.zeros(2) + torch.zeros(3)
    monkeypatch.setenv("PARNAS_TRACEBACK", "1")
    with pytest.raises(SystemExit), user_errors():
        raise ValueError("x")
    assert "Traceback" in capsys.readouterr().err
