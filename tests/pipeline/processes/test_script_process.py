"""A process that runs scripts: it never outlives its worker, and no folder has two."""

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.processes.run_scripts import reason_of
from pipeline.processes.script_process import FolderBusy, Interrupted, ScriptProcess, Watcher
from tests.pipeline.processes.scripts import plant

Start = Callable[..., ScriptProcess]


def watcher_with(is_ending: Callable[[], bool] = lambda: False, **more: Any) -> Watcher:
    return Watcher(is_ending=is_ending, **more)


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts a stand-in script in a process; ends what is left of it."""
    plant(tmp_path / "scripts", monkeypatch)
    started = []

    def begin(
        script: str, *arguments: str, folder: str = "trial", alive_s: float = 60, wait_s: float = 0
    ) -> ScriptProcess:
        process = ScriptProcess(
            tmp_path / folder,
            [*arguments, "--scripts", *script.split()],
            watcher_with(environment={"GIVEN": "yes"}, alive_s=alive_s, wait_s=wait_s),
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()


def ended(process: ScriptProcess) -> int:
    until = time.monotonic() + 60
    while (code := process.poll()) is None:
        assert time.monotonic() < until
        time.sleep(0.05)
    return code


def spoke(process: ScriptProcess, word: str) -> None:
    until = time.monotonic() + 60
    while word not in process.log.read_text():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_scripts_run_in_turn_with_the_same_arguments(start: Start) -> None:
    process = start("says says", "file.yaml", "--run", "here")
    assert ended(process) == 0
    first, *rest = process.log.read_text().splitlines()
    assert first == "--- attempt: scripts says says"
    assert rest == ["said file.yaml --run here"] * 2


@pytest.mark.parametrize(
    ("script", "code", "reason"),
    [
        ("refuses", 2, "exit code 2: x.yaml:1: model.slots: must be at least 1"),
        ("raises", 1, "exit code 1: RuntimeError: the matrix is not there"),
        ("kills", -9, "killed from outside (SIGKILL), as the system does where memory runs out"),
        ("eats", 1, "out of memory: MemoryError"),
    ],
)
def test_a_failure_is_an_exit_code_and_a_reason_and_ends_the_scripts(
    start: Start, script: str, code: int, reason: str
) -> None:
    process = start(f"{script} says")
    assert ended(process) == code
    assert "said" not in process.log.read_text()
    assert reason_of(code, process.log) == reason


def test_stopping_lets_it_save_its_state(start: Start, tmp_path: Path) -> None:
    process = start("saves", str(tmp_path / "state"))
    spoke(process, "ready")
    process.stop()
    assert (process.poll(), (tmp_path / "state").read_text()) == (143, "saved")


def test_the_stacks_of_one_that_hangs_are_in_its_log(start: Start) -> None:
    process = start("hangs")
    spoke(process, "hanging")
    process.show_stacks()
    assert process.poll() == -signal.SIGABRT
    assert 'hangs.py", line' in process.log.read_text()


def test_one_that_hears_nothing_is_killed(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.processes.script_process._GRACE_S", 0.5)
    monkeypatch.setattr("pipeline.processes.script_process._STACKS_S", 0.5)
    for way in (ScriptProcess.stop, ScriptProcess.show_stacks):
        process = start("deaf", folder=way.__name__)
        spoke(process, "hears nothing")
        way(process)
        assert process.poll() == -signal.SIGKILL


def test_it_ends_with_its_state_saved_when_its_worker_gives_no_sign(
    start: Start, tmp_path: Path
) -> None:
    process = start("saves", str(tmp_path / "state"), alive_s=2)
    spoke(process, "ready")
    for _ in range(6):
        time.sleep(0.5)
        process.beat()
    assert process.poll() is None
    assert ended(process) == 143
    assert (tmp_path / "state").read_text() == "saved"
    assert "gave no sign for 2 s" in process.log.read_text()


WORKER = """
import sys, time
from pathlib import Path
from pipeline.processes.script_process import ScriptProcess, Watcher
folder = Path(sys.argv[1])
watcher = Watcher(is_ending=lambda: False)
ScriptProcess(folder / "trial", [str(folder / "state"), "--scripts", "saves"], watcher)
print("started", flush=True)
time.sleep(600)
"""


def test_it_ends_with_its_state_saved_when_its_worker_is_killed_and_holds_the_folder_until_then(
    start: Start, tmp_path: Path
) -> None:
    path = os.pathsep.join([str(Path.cwd()), os.environ["PYTHONPATH"]])
    command = [sys.executable, "-c", WORKER, str(tmp_path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
    ) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "started\n"
        log = tmp_path / "trial" / "trial.log"
        until = time.monotonic() + 60
        while "ready" not in log.read_text():
            assert time.monotonic() < until
            time.sleep(0.05)
        with pytest.raises(FolderBusy):
            start("says")
        worker.kill()
    process = start("says", wait_s=30)
    assert (tmp_path / "state").read_text() == "saved"
    assert ended(process) == 0
    assert "stopping: the worker is gone" in log.read_text()


def test_a_folder_has_one_process_at_a_time(start: Start) -> None:
    first = start("hangs")
    looks = itertools.count()
    waits = watcher_with(lambda: next(looks) < 0, wait_s=0.5)
    with pytest.raises(FolderBusy):
        ScriptProcess(first.log.parent, [], waits)
    assert next(looks) > 0
    with pytest.raises(Interrupted):
        ScriptProcess(first.log.parent, [], watcher_with(lambda: True))
    start("hangs", folder="other")
    first.kill()
    start("hangs")


def test_the_environment_is_added_to(start: Start, tmp_path: Path) -> None:
    (tmp_path / "scripts" / "asks.py").write_text(
        "import os\ndef main(arguments):\n    print(os.environ['GIVEN'], os.environ['HOME'])\n"
    )
    process = start("asks")
    assert ended(process) == 0
    assert f"yes {os.environ['HOME']}\n" in process.log.read_text()


def test_the_system_ends_it_before_its_worker(start: Start) -> None:
    process = start("hangs")
    spoke(process, "hanging")
    score = Path(f"/proc/{process._process.pid}/oom_score_adj")
    if not score.exists():
        pytest.skip("the system has no oom_score_adj")
    assert score.read_text().strip() == "1000"
