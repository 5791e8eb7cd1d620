"""Scripts run in a process: what is their own failure, and what only came from outside."""

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.experiment import Experiment, load_experiment
from pipeline.processes.child import LEFT_ALONE
from pipeline.processes.run_scripts import (
    Failed,
    Limits,
    expected_folders,
    last_words,
    reason_of,
    run_scripts,
)
from pipeline.processes.script_process import Interrupted, ScriptProcess, Watcher
from tests.pipeline.processes.scripts import plant
from tests.sweeping import Clock
from utils.files import append_line, write_whole

Sign = Callable[[ScriptProcess | None], None]

# Counts its starts in the run folder; goes on until it is told to end, then is done.
SEARCH = """
import pathlib, signal, sys, time
def main(arguments):
    run = pathlib.Path(arguments[arguments.index("--run") + 1])
    starts = run / "starts"
    starts.write_text((starts.read_text() if starts.exists() else "") + "x")
    signal.signal(15, lambda *_: sys.exit(143))
    if len(starts.read_text()) < WANTED:
        print("ready", flush=True)
        time.sleep(600)
    return 0
"""


@pytest.fixture
def experiment(experiment_file: Path) -> Experiment:
    return load_experiment(experiment_file)


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Puts stand-ins in the place of the scripts."""
    plant(tmp_path / "scripts", monkeypatch)

    def put(name: str, text: str) -> None:
        (tmp_path / "scripts" / f"{name}.py").write_text(text)

    return put


class Hooked(Watcher):
    """Does what a test wants with every sign and before every second start."""

    def __init__(
        self,
        sign: Sign = lambda process: None,
        confirm: Callable[[], None] = lambda: None,
        **more: Any,
    ) -> None:
        environment = {"PYTHONDONTWRITEBYTECODE": "1"}
        more = {"is_ending": lambda: False, "wait_s": 1, **more}
        super().__init__(environment=environment, **more)
        self.sign = sign
        self.confirm = confirm


def test_a_process_that_was_ended_from_outside_is_started_again(
    experiment: Experiment, tmp_path: Path, scripts: Callable[[str, str], None]
) -> None:
    scripts("stands_in", SEARCH.replace("WANTED", "3"))
    run, asked, killed = tmp_path / "run", [], set()

    def sign(process: ScriptProcess | None) -> None:
        if process is not None and process.log.read_text().count("ready") > len(killed):
            killed.add(process._process.pid)
            os.kill(process._process.pid, signal.SIGTERM)

    run_scripts(
        experiment,
        ["stands_in"],
        run,
        Limits(None, 60),
        Hooked(sign, confirm=lambda: asked.append("again")),
    )
    assert (run / "starts").read_text() == "xxx"
    assert asked == ["again"] * 2


def test_a_process_whose_worker_was_silent_for_too_long_is_started_again(
    experiment: Experiment, tmp_path: Path, scripts: Callable[[str, str], None]
) -> None:
    scripts("stands_in", SEARCH.replace("WANTED", "2"))
    run = tmp_path / "run"

    def sign(process: ScriptProcess | None) -> None:
        if process is not None and process.log.read_text().count("--- attempt") == 2:
            process.beat()

    run_scripts(experiment, ["stands_in"], run, Limits(None, 60), Hooked(sign, alive_s=2.0))
    assert (run / "starts").read_text() == "xx"
    assert "the worker gave no sign for 2 s" in (run / "trial.log").read_text()


def ended(process: ScriptProcess | None) -> bool:
    return process is not None and process.poll() is not None


def test_where_the_worker_must_stop_too_the_run_is_interrupted_and_has_not_failed(
    experiment: Experiment, tmp_path: Path, scripts: Callable[[str, str], None]
) -> None:
    scripts("stands_in", f"def main(arguments):\n    return {LEFT_ALONE}\n")
    seen: list[ScriptProcess | None] = []
    # The stop comes once the process has ended by itself.
    watcher = Hooked(seen.append, is_ending=lambda: bool(seen) and ended(seen[0]))
    with pytest.raises(Interrupted):
        run_scripts(experiment, ["stands_in"], tmp_path / "run", Limits(None, 60), watcher)


def test_one_that_is_always_ended_from_outside_fails_in_the_end(
    experiment: Experiment, tmp_path: Path, scripts: Callable[[str, str], None]
) -> None:
    scripts("stands_in", "def main(arguments):\n    return 143\n")
    with pytest.raises(Failed, match="exit code 143"):
        run_scripts(experiment, ["stands_in"], tmp_path / "run", Limits(None, 60), Hooked())


def test_a_folder_that_cannot_be_written_is_no_fault_of_the_run(
    experiment: Experiment, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match="file"):
        run_scripts(experiment, ["says"], tmp_path / "file" / "run", Limits(None, 60), Hooked())


def test_silence_is_measured_from_the_start_and_from_every_change(tmp_path: Path) -> None:
    log, metrics, clock = tmp_path / "trial.log", tmp_path / "metrics.jsonl", Clock()
    log.write_text("of yesterday")
    os.utime(log, (1, 1))
    limits = Limits(None, 60, silent_hint="ask again", clock=clock)

    def broken_after(elapsed_s: float, *files: Path) -> str | None:
        clock.now += elapsed_s
        return limits.broken(files)

    assert broken_after(50, log, metrics) is None
    for word in "abc":
        log.write_text(log.read_text() + word)
        os.utime(log, (1, 1))
        assert broken_after(50, log, metrics) is None
    metrics.write_text("{}")
    assert broken_after(50, log, metrics) is None
    metrics.unlink()
    assert broken_after(50, log, metrics) is None
    assert broken_after(50, log) is None  # another list of files is a change
    assert broken_after(60, log) is None
    assert broken_after(1, log) == "silent for 1 minutes (ask again)"


def test_a_run_has_its_time_whatever_it_says(tmp_path: Path) -> None:
    log, clock = tmp_path / "trial.log", Clock()
    limits = Limits(60, 600, total_hint="its.key", clock=clock)
    for word in "abc":
        log.write_text(word)
        clock.now += 20
        assert limits.broken([log]) is None
    log.write_text("busy")
    clock.now += 1
    assert limits.broken([log]) == "not done after 1 minutes (its.key)"


def test_a_hanging_one_fails_with_its_stacks_in_the_log(
    experiment: Experiment, tmp_path: Path, scripts: Callable[[str, str], None]
) -> None:
    scripts("stands_in", SEARCH.replace("WANTED", "9"))
    log, clock = tmp_path / "run" / "trial.log", Clock()

    def sign(process: ScriptProcess | None) -> None:
        if process is not None and "ready" in log.read_text():
            clock.now += 40

    with pytest.raises(Failed, match=r"silent for .*; trial\.log ends with where it was"):
        run_scripts(
            experiment, ["stands_in"], tmp_path / "run", Limits(None, 60, clock=clock), Hooked(sign)
        )
    assert 'stands_in.py", line' in log.read_text()


# As a retraining saves its model: whole folders come and go by other names.
RENAMES = """
import pathlib, time
def main(arguments):
    run = pathlib.Path(arguments[arguments.index("--run") + 1])
    folder = run / "retrain" / "a" / "seed-0"
    folder.mkdir(parents=True)
    until = time.monotonic() + 1.0
    while time.monotonic() < until:
        work = folder / ".model.1.tmp"
        (work / "parts").mkdir(parents=True)
        work.rename(folder / "model")
        (folder / "model" / "parts").rmdir()
        (folder / "model").rmdir()
    return 0
"""


def test_folders_that_a_run_renames_do_not_end_whoever_watches_it(
    experiment: Experiment,
    tmp_path: Path,
    scripts: Callable[[str, str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scripts("stands_in", RENAMES)
    monkeypatch.setattr("pipeline.processes.run_scripts._POLL_S", 0.0)
    run_scripts(experiment, ["stands_in"], tmp_path / "run", Limits(None, 60), Hooked())


def test_a_run_that_writes_to_the_metrics_of_its_retraining_alone_is_not_silent(
    undisturbed: Path, experiment: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (architecture,) = undisturbed.glob("retrain/*/seed-0/architecture.json")
    run, name = tmp_path / "run", architecture.parents[1].name

    class Retraining:
        """A process that chooses its architecture first, and then writes a row at every look."""

        log = tmp_path / "run" / "trial.log"
        looks = 0

        def poll(self) -> int | None:
            self.looks += 1
            if self.looks == 1:
                write_whole(run / "architecture.json", architecture.read_bytes())
                (run / "retrain" / name / "seed-0").mkdir(parents=True)
            elif self.looks < 6:
                append_line(run / "retrain" / name / "seed-0" / "metrics.jsonl", "{}")
            return 0 if self.looks == 6 else None

    monkeypatch.setattr("pipeline.processes.run_scripts._POLL_S", 0.0)
    monkeypatch.setattr(
        "pipeline.processes.run_scripts.ScriptProcess", lambda *arguments, **more: Retraining()
    )
    # A look without a change would be silence.
    run_scripts(experiment, ["says"], run, Limits(None, 0.0), Hooked())


def test_what_a_watcher_raises_of_the_search_s_metrics_ends_the_process(
    experiment: Experiment, tmp_path: Path, scripts: Callable[[str, str], None]
) -> None:
    scripts("stands_in", SEARCH.replace("WANTED", "9"))
    metrics = tmp_path / "run" / "search" / "seed-0" / "metrics.jsonl"
    started: list[ScriptProcess | None] = []
    heard: list[Path] = []

    class Refuses(Hooked):
        def search_wrote(self, metrics: Path) -> None:
            heard.append(metrics)
            raise Failed("not this one")

    def sign(process: ScriptProcess | None) -> None:
        # Once: a run that writes on and on is never silent, and this would not end.
        if process is not None and not started and "ready" in process.log.read_text():
            started.append(process)
            append_line(metrics, "{}")

    metrics.parent.mkdir(parents=True)
    with pytest.raises(Failed, match="not this one"):
        run_scripts(experiment, ["stands_in"], tmp_path / "run", Limits(None, 60), Refuses(sign))
    assert heard == [metrics]
    assert started[0] is not None
    assert started[0].poll() == -signal.SIGKILL


ATTEMPT = "--- attempt: scripts search derive retrain\n"
ERROR = "Traceback (most recent call last):\nRuntimeError: the matrix is not there\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no word in its log"),
        ("one\n\ntwo\n\n", "two"),
        (ERROR + "and how\n", "RuntimeError: the matrix is not there"),
        (ATTEMPT + ERROR + ATTEMPT + "step 5\nno space left\n", "no space left"),
        (ATTEMPT + ERROR + ATTEMPT, "no word in its log"),
        (ATTEMPT + "step 5\n" + ATTEMPT + ERROR, "RuntimeError: the matrix is not there"),
        (ERROR + ATTEMPT + "step 5 of 9\n" * 4000, "step 5 of 9"),
    ],
)
def test_the_last_words_are_those_of_the_last_attempt(
    tmp_path: Path, text: str, words: str
) -> None:
    log = tmp_path / "trial.log"
    log.write_text(text)
    assert last_words(log) == words


def test_a_process_that_left_no_log_or_ended_by_a_nameless_signal_has_a_reason(
    tmp_path: Path,
) -> None:
    log = tmp_path / "trial.log"
    assert reason_of(2, log) == f"exit code 2: {log}: No such file or directory"
    log.write_text("step 5\n")
    assert reason_of(-15, log) == "ended by SIGTERM: step 5"
    assert reason_of(-50, log) == "ended by signal 50: step 5"


def test_the_folders_of_the_phases_are_known_by_name(undisturbed: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(undisturbed, tmp_path / "run"))
    search = run / "search" / "seed-0"
    (result,) = run.glob("retrain/*/seed-0/result.json")
    shutil.copy(result.with_name("architecture.json"), run)
    assert expected_folders(run, 0) == [search, result.parent]
    assert all((folder / "metrics.jsonl").exists() for folder in expected_folders(run, 0))
    (run / "architecture.json").write_text("{")
    assert expected_folders(run, 0) == [search]
    (run / "architecture.json").unlink()
    assert expected_folders(run, 0) == [search]
