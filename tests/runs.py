"""Scripts that run in this process: to their end, refused, or killed; and what they leave."""

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from pipeline.experiment import dump_experiment, with_settings
from tests.disk import Killed
from training.console import Screen

ROOT = Path(__file__).resolve().parents[1]
SEARCH, RETRAIN = "search/seed-0", "retrain/layout-adad/seed-0"
LAYOUT = ["--layout", "a d a d"]
TIME = {"elapsed_s", "tokens_per_s"}
# What scripts say on stderr while they prepare.
PROGRESS = (
    "files: ",
    "preparing the baselines: ",
    "measuring ",
    "of ",
    "predictor: ",
    "trained: ",
    "to train ",
    "already trained: ",
)
Capture = pytest.CaptureFixture[str]


def settings(*texts: str) -> list[str]:
    """`--set` before each."""
    return [part for text in texts for part in ("--set", text)]


def own_texts(folder: Path) -> list[str]:
    """Settings of an experiment on the texts in a folder."""
    texts = (f"{split}: {(folder / split).as_posix()}.txt" for split in ("train", "valid", "test"))
    return ["data.corpus=files", f"data.files={{{', '.join(texts)}}}"]


def code_of(script: Any, *arguments: Any) -> int:
    """The exit code of a script, or of a function that takes a command line."""
    try:
        return int(getattr(script, "main", script)([str(argument) for argument in arguments]))
    except SystemExit as stop:
        return int(stop.code or 0)


def run(script: Any, *arguments: Any) -> None:
    assert code_of(script, *arguments) == 0


def write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1))


def run_jobs_here(jobs: Any, *, done: Any, **_: Any) -> None:
    """What `pipeline.jobs.run_all` does, without a process for each, which first imports torch."""
    for job in jobs:
        file = job.folder / "experiment.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        experiment = with_settings(job.experiment, {"run.figures": False, "derive.gap": False})
        file.write_text(dump_experiment(experiment))
        (job.folder / "job.log").touch()
        for script in job.scripts:
            run(importlib.import_module(script), file, "--run", job.folder)
        done(job)


def refused(script: Any, capsys: pytest.CaptureFixture[str], *arguments: Any, code: int = 2) -> str:
    """The one line on stderr of a script that must refuse, without the command to go on with."""
    capsys.readouterr()
    assert code_of(script, *arguments) == code
    error = capsys.readouterr().err
    assert "Traceback" not in error
    lines = [line for line in error.splitlines() if not line.startswith(PROGRESS)]
    assert len(lines) == 1 or (lines[1:] and lines[0].endswith("Resume with:")), error
    assert lines[0].isprintable()
    assert len(lines[0]) < 2000
    return lines[0]


def killed_after(step: int, script: Any, *arguments: Any) -> None:
    """The loop dies in the middle of the step after this one."""

    def dying(self: Screen, at: int) -> None:
        if at > step:
            raise Killed

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Screen, "advance", dying)
        with pytest.raises(Killed):
            run(script, *arguments)


def rows(path: Path) -> list[dict[str, Any]]:
    """Metrics without the columns of time."""
    lines = path.read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k not in TIME} for line in lines]


def load_result(path: Path) -> dict[str, Any]:
    """A result.json without the time that it took."""
    result: dict[str, Any] = json.loads(path.read_text())
    del result["elapsed_s"]
    return result


def state_of(folder: Path) -> dict[Path, tuple[bytes, int]]:
    """What a run wrote, and when."""
    return {
        path: (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def assert_same(one: Path, two: Path) -> None:
    """Of two phases: all metrics and tensors the same, times excepted."""
    assert rows(one / "metrics.jsonl") == rows(two / "metrics.jsonl")
    saved = [sorted(path.name for path in folder.glob("*.safetensors")) for folder in (one, two)]
    assert saved[0] == saved[1]
    for name in saved[0]:
        tensors: list[dict[str, Any]] = [load_file(folder / name) for folder in (one, two)]
        assert tensors[0].keys() == tensors[1].keys()
        assert all(torch.equal(tensors[0][key], tensors[1][key]) for key in tensors[0])
    for name in ("pi.npz", "pi.csv", "model/model.safetensors"):
        assert (one / name).exists() == (two / name).exists()
        assert not (one / name).exists() or (one / name).read_bytes() == (two / name).read_bytes()
    assert (one / "result.json").exists() == (two / "result.json").exists()
    if (one / "result.json").exists():
        assert load_result(one / "result.json") == load_result(two / "result.json")
    assert not [path for path in two.rglob("*") if path.name[0] == "." or path.suffix == ".tmp"]


def last_step(metrics: Path) -> int:
    """The last step that a phase has logged; 0 before any."""
    if not metrics.exists():
        return 0
    lines = metrics.read_bytes().split(b"\n")[:-1]
    text = lines[-1].decode() if lines else '"step": 0,'
    return int(text.split('"step": ')[1].split(",")[0])


@contextmanager
def locked_by_another(folder: Path, name: str) -> Iterator[None]:
    """While another process has a folder's lock of this name."""
    code = (
        "import sys; from pathlib import Path; from training.run_dir import locked\n"
        "with locked(Path(sys.argv[1]), sys.argv[2]): print('has it', flush=True); sys.stdin.read()"
    )
    command, pipe = [sys.executable, "-c", code, str(folder), name], subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "has it\n"
        yield
        first.communicate()
