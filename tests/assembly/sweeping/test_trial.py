"""A run of a trial: what is its own failure, and what only came from outside."""

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from assembly.sweeping import trial
from assembly.sweeping.child import LEFT_ALONE
from assembly.sweeping.process import TrialProcess
from assembly.sweeping.trial import Around, Failed, Interrupted, Limits, run_seed
from experiment import Experiment, load_experiment
from tests.assembly.sweeping.scripts import plant
from tests.assembly.sweeping.test_attempt import found

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
    monkeypatch.setattr(trial, "read_outcome", lambda *arguments: found(1.0))
    monkeypatch.setattr(trial, "SCRIPTS", ("stands_in", "says", "says"))

    def put(name: str, text: str) -> None:
        (tmp_path / "scripts" / f"{name}.py").write_text(text)

    return put


def around_of(
    alive: Callable[[TrialProcess | None], None], again: Callable[[], None] = lambda: None
) -> Around:
    return Around({"PYTHONDONTWRITEBYTECODE": "1"}, alive, None, again, alive_s=60, wait_s=1)


def test_a_process_that_was_ended_from_outside_is_started_again(
    experiment: Experiment, tmp_path: Path, scripts: Callable[[str, str], None]
) -> None:
    scripts("stands_in", SEARCH.replace("WANTED", "3"))
    run, asked, killed = tmp_path / "run", [], set()

    def alive(process: TrialProcess | None) -> None:
        if process is not None and process.log.read_text().count("ready") > len(killed):
            killed.add(process._process.pid)
            os.kill(process._process.pid, signal.SIGTERM)

    result = run_seed(
        experiment,
        ["retrained"],
        run,
        Limits(None, 60),
        around_of(alive, again=lambda: asked.append("again")),
    )
    assert result.objectives["retrained"] == 1.0
    assert (run / "starts").read_text() == "xxx"
    assert asked == ["again"] * 2


def test_a_process_whose_worker_was_silent_for_too_long_is_started_again(
    experiment: Experiment, tmp_path: Path, scripts: Callable[[str, str], None]
) -> None:
    scripts("stands_in", SEARCH.replace("WANTED", "2"))
    run = tmp_path / "run"
    run_seed(
        experiment,
        ["onehot"],
        run,
        Limits(None, 60),
        replace(around_of(lambda process: None), alive_s=1.0),
    )
    assert (run / "starts").read_text() == "xx"
    assert "the worker gave no sign for 1 s" in (run / "trial.log").read_text()


def test_where_the_worker_must_stop_too_the_trial_is_interrupted_and_has_not_failed(
    experiment: Experiment, tmp_path: Path, scripts: Callable[[str, str], None]
) -> None:
    scripts("stands_in", f"def main(arguments):\n    return {LEFT_ALONE}\n")
    stopping = threading.Event()

    def alive(process: TrialProcess | None) -> None:
        if process is None and stopping.is_set():
            raise Interrupted
        stopping.set()

    with pytest.raises(Interrupted):
        run_seed(experiment, ["onehot"], tmp_path / "run", Limits(None, 60), around_of(alive))


def test_a_trial_that_is_always_ended_from_outside_fails_in_the_end(
    experiment: Experiment, tmp_path: Path, scripts: Callable[[str, str], None]
) -> None:
    scripts("stands_in", "def main(arguments):\n    return 143\n")
    with pytest.raises(Failed, match="exit code 143"):
        run_seed(
            experiment,
            ["onehot"],
            tmp_path / "run",
            Limits(None, 60),
            around_of(lambda process: None),
        )


def test_a_folder_that_cannot_be_written_is_no_fault_of_the_trial(
    experiment: Experiment, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match="file"):
        run_seed(
            experiment,
            ["onehot"],
            tmp_path / "file" / "run",
            Limits(None, 60),
            around_of(lambda process: None),
        )


def test_silence_is_measured_from_the_start_and_from_every_change(tmp_path: Path) -> None:
    log = tmp_path / "trial.log"
    log.write_text("of yesterday")
    os.utime(log, (1, 1))
    limits = Limits(None, 0.4)
    assert limits.broken(log, tmp_path) is None
    for word in "abc":
        time.sleep(0.25)
        log.write_text(log.read_text() + word)
        os.utime(log, (1, 1))
        assert limits.broken(log, tmp_path) is None
    (tmp_path / "search").mkdir()
    time.sleep(0.25)
    (tmp_path / "search" / "metrics.jsonl").write_text("{}")
    assert limits.broken(log, tmp_path) is None
    time.sleep(0.5)
    assert limits.broken(log, tmp_path) == "silent for 0.00666667 minutes (sweep.silent_minutes)"


def test_a_trial_has_its_time_whatever_it_says(tmp_path: Path) -> None:
    log = tmp_path / "trial.log"
    log.write_text("")
    limits = Limits(0.3, 60)
    assert limits.broken(log, tmp_path) is None
    time.sleep(0.4)
    log.write_text("busy")
    assert str(limits.broken(log, tmp_path)).startswith("not done after 0.005 minutes")


def test_a_hanging_one_fails_with_its_stacks_in_the_log(
    experiment: Experiment, tmp_path: Path, scripts: Callable[[str, str], None]
) -> None:
    scripts("stands_in", SEARCH.replace("WANTED", "9"))
    with pytest.raises(Failed, match=r"silent for .*; trial\.log ends with where it was"):
        run_seed(
            experiment,
            ["onehot"],
            tmp_path / "run",
            Limits(None, 2.0),
            around_of(lambda process: None),
        )
    assert 'stands_in.py", line' in (tmp_path / "run" / "trial.log").read_text()
