"""Whole sweeps: results, crashes of every kind, and what a person finds afterwards."""

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState

import search
import sweep
from hpo.queue import LEASE, Entry
from hpo.storage import open_storage
from tests.postgres_server import PostgresServer, postgres, postgres_session
from tests.sweeping import (
    SLOW_STEPS,
    Overlaps,
    add_sweep,
    all_ended,
    command,
    in_the_middle,
    journal_entries,
    lease_pid,
    processes,
    run,
    stored_entries,
    table,
    wait_for,
)

__all__ = ["postgres", "postgres_session"]

SLOWER = f"search.steps={SLOW_STEPS}", "run.checkpoint_every=10", "run.validate_every=100"


def _set(*settings: str) -> list[str]:
    return [part for setting in settings for part in ("--set", setting)]


SLOW = _set(*SLOWER)


@pytest.mark.slow
def test_a_sweep_leaves_a_table_a_report_and_an_experiment_that_search_takes(
    experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, folder = add_sweep(experiment_file, trials=2), tmp_path / "run"
    done = run(file, "--run", folder)
    assert done.returncode == 0, done.stderr + done.stdout
    rows = table(folder)
    assert [row["state"] for row in rows] == ["done", "done"]
    base = next(row for row in rows if row["number"] == "0")
    assert (base["search.tau.schedule"], base["model.slots"]) == ("linear", "4")
    summary = json.loads((folder / "sweep.json").read_text())
    best = min(summary["rows"], key=lambda row: row["values"])
    assert summary["best"] == [best["number"]]
    assert (folder / "sweep.html").exists()
    assert list((folder / "figures").glob("*.png"))
    written = sorted(path.name for path in folder.glob("best*.yaml"))
    # On a busy machine no latency is measured, and then nothing is known to be no slower.
    measured = summary["no_slower"] is not None
    assert written == (["best.yaml", "best_no_slower.yaml"] if measured else ["best.yaml"])
    for name in written:
        assert search.main([str(folder / name), "--check"]) == 0
    # Started again it has nothing to do, and finds more to do where more trials are wanted.
    assert sweep.main([str(file), "--run", str(folder), "--check"]) == 0
    result = folder / "trials" / f"{best['number']:04d}" / "seed-0" / "retrain"
    (found,) = result.glob("*/seed-0/result.json")
    assert json.loads(found.read_text())["valid"]["bits_per_byte"] == best["values"][0]
    # Checkpoints are kept of the best one only.
    kept = {path.relative_to(folder / "trials").parts[0] for path in folder.rglob("*.safetensors")}
    assert kept == {f"{best['number']:04d}"}


FAULTS = """
import sys, types

def raises(arguments):
    raise RuntimeError("the matrix is not there")

def eats(arguments):
    import resource, torch
    resource.setrlimit(resource.RLIMIT_AS, (4 * 10**9, 4 * 10**9))
    torch.zeros(10**10)

words = " ".join(sys.orig_argv)
if "pipeline.processes.child" in words:
    for place, main in {"trials/0001/": raises, "trials/0004/": eats}.items():
        if place in words:
            sys.modules["search"] = types.ModuleType("search")
            sys.modules["search"].main = main
    if "trials/0002/" in words:
        import os, signal, threading
        threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGKILL)).start()
    if "trials/0003/" in words:
        import time
        time.sleep(3600)
"""


@pytest.mark.slow
def test_a_trial_that_raises_is_killed_hangs_or_lacks_memory_fails_with_its_reason(
    experiment_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "faults").mkdir()
    (tmp_path / "faults" / "sitecustomize.py").write_text(FAULTS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "faults"))
    folder = tmp_path / "run"
    file = add_sweep(experiment_file, trials=7, more="  silent_minutes: 1.0\n")
    done = run(file, "--run", folder, "--workers", 2)
    assert done.returncode == 0, done.stderr
    rows = {int(row["number"]): row for row in table(folder)}
    assert {number for number, row in rows.items() if row["state"] == "done"} == {0, 5, 6}
    assert "RuntimeError: the matrix is not there" in rows[1]["reason"]
    assert "killed from outside (SIGKILL)" in rows[2]["reason"]
    assert "silent for 1 minutes" in rows[3]["reason"]
    assert rows[4]["reason"].startswith("out of memory: RuntimeError: ")
    assert "[7/7]" in done.stdout
    assert all_ended(folder)
    # With the faults gone the failed ones can be run again.
    monkeypatch.setenv("PYTHONPATH", "")
    again = run(file, "--run", folder, "--workers", 2, "--retry-failed")
    assert again.returncode == 0, again.stderr
    assert "4 failed trials run again" in again.stdout
    rows = {int(row["number"]): row for row in table(folder)}
    assert [row["state"] for row in rows.values()] == ["done"] * 7
    assert [rows[number]["attempts"] for number in (0, 1, 2, 3, 4)] == ["1", "2", "2", "2", "2"]


@pytest.mark.slow
def test_ctrl_c_leaves_a_sweep_that_goes_on_later(experiment_file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    file = add_sweep(experiment_file, trials=3)
    arguments = command(file, "--run", folder, "--workers", 2, *SLOW)
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        wait_for(lambda: in_the_middle(folder, journal_entries(folder)))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "Go on with:" in err
    assert "Traceback" not in err + out
    assert all_ended(folder)
    states = [row["state"] for row in table(folder)]
    assert len(states) == 3
    assert "stopped" in states
    assert "running" not in states
    again = run(file, "--run", folder, "--workers", 2, *SLOW)
    assert again.returncode == 0, again.stderr
    rows = table(folder)
    assert [row["state"] for row in rows] == ["done"] * 3
    assert any("search step" in row["went_on_from"] for row in rows)
    assert sum(row["attempts"] == "2" for row in rows) == states.count("stopped")


@pytest.mark.slow
def test_a_sweep_whose_every_process_is_killed_goes_on(
    experiment_file: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    file = add_sweep(experiment_file, trials=3)
    arguments = command(file, "--run", folder, *SLOW)
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, start_new_session=True)
    (running,) = wait_for(lambda: in_the_middle(folder, journal_entries(folder)))
    assert lease_pid(running.last) == process.pid
    process.kill()
    process.wait()
    # Its child sees the pipe closed and ends by itself.
    wait_for(lambda: all_ended(folder))
    again = run(file, "--run", folder, *SLOW)
    assert again.returncode == 0, again.stderr
    rows = table(folder)
    assert [row["state"] for row in rows] == ["done"] * 3
    (hit,) = (row for row in rows if row["attempts"] == "2")
    assert "search step" in hit["went_on_from"]
    assert f"its worker (process {process.pid} on " in again.stdout


Popen = subprocess.Popen[Any]


@contextmanager
def pools(
    file: Path, folder: Path, *arguments: object, workers: int
) -> Iterator[tuple[Popen, Callable[[], Popen]]]:
    """Start a sweep; and what lets another pool of as many workers join it."""
    own = [file, "--run", folder, "--workers", workers, *arguments]
    more: dict[str, Any] = {"text": True, "env": {**os.environ, "OMP_NUM_THREADS": "1"}}
    joined: list[Popen] = []

    def join() -> Popen:
        with (folder.parent / f"joined-{len(joined)}.log").open("w") as log:
            process = subprocess.Popen(command(*own, "--worker"), stdout=log, stderr=log, **more)
        joined.append(process)
        return process

    with subprocess.Popen(
        command(*own), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **more
    ) as process:
        try:
            yield process, join
        finally:
            for each in (process, *joined):
                each.kill()
                each.wait()


def sweep_with_two_kills(
    file: Path,
    folder: Path,
    *settings: str,
    trials: int,
    workers: int,
    found: Callable[[], list[Entry]],
) -> None:
    """Run a sweep in four pools of some workers, two of which are killed amid their trials.

    A process of a trial is ended from outside too, and goes on in the same attempt.

    Args:
        file: the experiment; the sweep is added to it.
        folder: the run directory.
        settings: more of them.
        trials: how many there are.
        workers: of each pool.
        found: the trials as the storage has them.
    """
    overlaps = Overlaps(folder)
    add_sweep(file, trials=trials)
    with pools(file, folder, *SLOW, *_set(*settings), workers=workers) as (main, join):
        wait_for(lambda: is_running(found()))
        doomed = {process.pid: process for process in (join(), join())}
        survivor, killed, ended = join(), set[int](), set[int]()

        def watch() -> bool:
            overlaps.look()
            for entry in in_the_middle(folder, found()):
                pid = lease_pid(entry.last)
                if pid in doomed and pid not in killed:
                    doomed[pid].kill()
                    killed.add(pid)
                elif pid == main.pid and not ended:
                    end_process_of(folder, entry.number)
                    ended.add(entry.number)
            return main.poll() is not None

        wait_for(watch, limit_s=1500)
        out, _ = main.communicate()
        assert main.returncode == 0, out
        # All trials have ended, which the other pool sees within a second or so.
        assert survivor.wait(120) == 0
    rows = table(folder)
    assert [row["state"] for row in rows] == ["done"] * trials
    assert killed == set(doomed)
    assert len(ended) == 1
    lost = [(entry.number, attempt) for entry in found() for attempt in entry.attempts[:-1]]
    assert {lease_pid(attempt) for _, attempt in lost if LEASE in attempt.system_attrs} == killed
    assert all(attempt.state == TrialState.FAIL for _, attempt in lost)
    attempts = Counter({int(row["number"]): int(row["attempts"]) for row in rows})
    assert attempts == Counter([*range(trials), *(number for number, _ in lost)])
    assert all(attempts[number] == 1 for number in ended)
    went_on = {int(row["number"]) for row in rows if "search step" in row["went_on_from"]}
    # At least those two amid which a pool was killed, and the one whose process was ended.
    assert went_on >= ended
    assert len(went_on & {number for number, _ in lost}) >= 2
    assert overlaps.looks > 20
    assert overlaps.twice == set()
    assert all_ended(folder)


def is_running(entries: list[Entry]) -> bool:
    """Whether a trial runs; before that nobody may join."""
    return any(entry.last.state == TrialState.RUNNING for entry in entries)


def end_process_of(folder: Path, number: int) -> None:
    """SIGTERM the process of a trial with all that it started."""
    for pid in processes("pipeline.processes.child", f"{folder}/trials/{number:04d}/"):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


@pytest.mark.slow
def test_10_trials_with_8_workers_of_which_four_are_killed_lose_nothing(
    experiment_file: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    sweep_with_two_kills(
        experiment_file, folder, trials=10, workers=2, found=lambda: journal_entries(folder)
    )


def sweep_on_a_server(file: Path, folder: Path, url: str, found: Callable[[], list[Entry]]) -> None:
    """The same with few trials, as the storage's own tests are many."""
    sweep_with_two_kills(file, folder, f"sweep.storage={url}", trials=6, workers=1, found=found)
    assert not (folder / "sweep" / "study.journal").exists()


@pytest.mark.slow
def test_12_trials_with_4_workers_of_which_three_pools_are_killed_at_random_lose_nothing(
    experiment_file: Path, tmp_path: Path
) -> None:
    file, folder = add_sweep(experiment_file, trials=12), tmp_path / "run"
    draw, overlaps, killed = random.Random(0), Overlaps(folder), list[int]()
    # Not by the clock: on a slow machine the kills are spread over the sweep all the same.
    due = sorted(draw.sample(range(1, 9), 3))
    with pools(file, folder, workers=2) as (main, join):
        wait_for(lambda: is_running(journal_entries(folder)))
        joined = join()

        def watch() -> bool:
            nonlocal joined
            overlaps.look()
            done = sum(entry.finished for entry in journal_entries(folder))
            if len(killed) < len(due) and done >= due[len(killed)]:
                # Somewhere in a trial, or between two.
                time.sleep(draw.uniform(0, 3))
                joined.kill()
                killed.append(joined.pid)
                joined = join()
            return main.poll() is not None

        wait_for(watch, limit_s=1500)
        out, _ = main.communicate()
        assert main.returncode == 0, out
        assert joined.wait(120) == 0
    rows = table(folder)
    assert [row["state"] for row in rows] == ["done"] * 12, out
    assert len(set(killed)) == 3
    assert overlaps.twice == set()
    assert overlaps.looks > 20
    assert all_ended(folder)
    lost = 0
    for entry in journal_entries(folder):
        states = [attempt.state for attempt in entry.attempts]
        assert states.count(TrialState.COMPLETE) == 1
        lost += len(states) - 1
        (path,) = (folder / "trials" / f"{entry.number:04d}").glob("seed-0/retrain/*/*/result.json")
        bits = json.loads(path.read_text())["valid"]["bits_per_byte"]
        assert entry.last.values == [bits]
    # Each kill loses two attempts at most: none where it hits a worker between two trials.
    assert lost <= 6
    assert out.count("; it runs again") == lost


@pytest.mark.slow
def test_the_same_on_a_postgresql_server(
    experiment_file: Path, tmp_path: Path, postgres: PostgresServer
) -> None:
    url = postgres.database()
    storage = open_storage(url, tmp_path / "none", create=True)
    folder = tmp_path / "run"
    sweep_on_a_server(experiment_file, folder, url, lambda: stored_entries(storage))
    secret = url.partition("://")[2].partition("@")[0].partition(":")[2].encode()
    assert secret
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert not [path for path in files if secret in path.read_bytes()]
