"""Scripts in a process of their own: in turn, stopped with their state, and why they failed."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from pipeline.experiment import load_experiment
from pipeline.jobs import Failed, Job, run_job
from tests.sweeping import ROOT
from training.signals import Stopped, StopRequest

SCRIPT = """
import os, signal, sys, time
from pathlib import Path

def main(arguments):
    folder = Path(arguments[arguments.index("--run") + 1])
    name = Path(sys.argv[0]).stem
    with (folder / "said").open("a") as file:
        file.write(f"{name} {os.environ.get('GIVEN')}\\n")
    BODY
    return 0
"""
WAITS = """
    signal.signal(signal.SIGTERM, lambda *rest: (folder / "saved").touch() or sys.exit(143))
    (folder / "began").touch()
    time.sleep(60)
"""


@pytest.fixture
def plant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put scripts in the place of the program's."""

    def planted(**bodies: str) -> None:
        for name, body in bodies.items():
            (tmp_path / f"{name}.py").write_text(SCRIPT.replace("    BODY", body))
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    return planted


def run(file: Path, folder: Path, *scripts: str, stop: StopRequest | None = None) -> None:
    """Run scripts for an experiment."""
    job = Job("a run", load_experiment(file), scripts, folder)
    run_job(job, stop or StopRequest(), {"GIVEN": "7"})


def test_scripts_run_in_turn_with_their_environment(
    experiment_file: Path, tmp_path: Path, plant: Any
) -> None:
    plant(one="", two="")
    run(experiment_file, tmp_path / "run", "one", "two")
    assert (tmp_path / "run" / "said").read_text() == "one 7\ntwo 7\n"


@pytest.mark.parametrize(
    ("body", "why", "code"),
    [
        ("    print('it is not there', file=sys.stderr); return 2", "exit code 2: it is not", 2),
        pytest.param(
            "    raise RuntimeError('no matrix')", "exit code 1: RuntimeError: no matrix", 1,
            marks=pytest.mark.slow,
        ),
        ("    os.kill(os.getpid(), 9)", r"killed from outside \(SIGKILL\)", -9),
    ],
)  # fmt: skip
def test_a_failure_has_its_reason_and_ends_the_scripts(
    experiment_file: Path, tmp_path: Path, plant: Any, body: str, why: str, code: int
) -> None:
    plant(one=body, two="")
    with pytest.raises(Failed, match=f"^{why}") as failed:
        run(experiment_file, tmp_path / "run", "one", "two")
    assert failed.value.code == code
    assert (tmp_path / "run" / "said").read_text() == "one 7\n"


def test_a_stop_lets_it_save_its_state(experiment_file: Path, tmp_path: Path, plant: Any) -> None:
    plant(one=WAITS)
    folder, stop = tmp_path / "run", StopRequest()

    def ask() -> None:
        while not (folder / "began").exists():
            time.sleep(0.05)
        stop.number = signal.SIGINT

    threading.Thread(target=ask).start()
    with pytest.raises(Stopped):
        run(experiment_file, folder, "one", stop=stop)
    assert (folder / "saved").exists()


@pytest.mark.slow
def test_it_ends_with_its_state_saved_when_its_starter_is_killed(
    experiment_file: Path, tmp_path: Path, plant: Any
) -> None:
    plant(one=WAITS)
    folder = tmp_path / "run"
    code = (
        "import sys; from pathlib import Path; from tests.pipeline.test_script_process import run;"
        "run(Path(sys.argv[1]), Path(sys.argv[2]), 'one')"
    )
    path = os.pathsep.join([str(ROOT), str(tmp_path)])
    with subprocess.Popen(
        [sys.executable, "-c", code, str(experiment_file), str(folder)],
        env={**os.environ, "PYTHONPATH": path},
    ) as starter:
        while not (folder / "began").exists():
            assert starter.poll() is None
            time.sleep(0.05)
        starter.kill()
    until = time.monotonic() + 30
    while not (folder / "saved").exists():
        assert time.monotonic() < until
        time.sleep(0.05)
