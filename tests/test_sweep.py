"""Whole sweeps: results, kills, stops, and what a person finds afterwards."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState

import search
import sweep
from hpo.study import TrialEntry
from tests.postgres_server import postgres, postgres_session
from tests.runs import settings
from tests.sweeping import (
    ROOT,
    add_sweep,
    command,
    command_of,
    run,
    stored_entries,
    table,
    wait_for,
    workers_of,
)

__all__ = ["postgres", "postgres_session"]


def sqlite(folder: Path) -> str:
    return f"sqlite:///{folder / 'sweep' / 'study.db'}"


@contextmanager
def started(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A sweep that is begun, and killed where a test fails."""
    with subprocess.Popen(
        command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def runs(found: list[TrialEntry]) -> list[TrialEntry]:
    """The trials that run now."""
    return [entry for entry in found if entry.last.state == TrialState.RUNNING]


@pytest.mark.slow
def test_a_sweep_leaves_a_table_a_report_and_an_experiment_that_search_takes(
    experiment_file: Path, tmp_path: Path
) -> None:
    file, folder = add_sweep(experiment_file, trials=2), tmp_path / "run"
    done = run(file, "--run", folder)
    assert done.returncode == 0, done.stderr + done.stdout
    rows = table(folder)
    assert [row["state"] for row in rows] == ["done", "done"]
    base = next(row for row in rows if row["number"] == "0")
    assert (base["search.tau.schedule"], base["model.n_blocks"]) == ("linear", "4")
    best = min(rows, key=lambda row: float(row["retrained"]))
    assert (folder / "sweep.html").exists()
    assert list((folder / "figures").glob("*.png"))
    assert search.main([str(folder / "best.yaml"), "--check"]) == 0
    # Started again it has nothing to do, and finds more to do where more trials are wanted.
    assert sweep.main([str(file), "--run", str(folder), "--check"]) == 0
    name = f"{int(best['number']):04d}"
    result = folder / "trials" / name / "seed-0" / "retrain"
    (found,) = result.glob("*/seed-0/result.json")
    assert json.loads(found.read_text())["valid"]["bits_per_byte"] == float(best["retrained"])
    # Checkpoints are kept of the best one only.
    kept = {path.relative_to(folder / "trials").parts[0] for path in folder.rglob("*.safetensors")}
    assert kept == {name}


SHORT = settings("search.steps=15", "retrain.steps=10")


@pytest.mark.slow
@pytest.mark.parametrize(("trials", "kills", "on_server"), [(24, 5, False), (6, 2, True)])
def test_trials_with_3_workers_some_killed_all_end_once(
    experiment_file: Path, tmp_path: Path, request: Any, trials: int, kills: int, on_server: bool
) -> None:
    file, folder = experiment_file, tmp_path / "run"
    url = request.getfixturevalue("postgres").database() if on_server else sqlite(folder)
    given = ["--set", f"sweep.storage={url}"] if on_server else []
    add_sweep(file, trials=trials, more="  retries: 5\n")
    assert stored_entries(url) == []
    draw, killed = random.Random(0), set[int]()
    with started(file, "--run", folder, "--workers", 3, *SHORT, *given) as main:

        def victims() -> list[int]:
            """Workers never killed, once some trials more have ended and another one runs."""
            found = stored_entries(url)
            ended = sum(entry.finished for entry in found)
            due = ended >= len(killed) * trials // (kills + 2) and runs(found)
            return sorted(set(workers_of(main.pid)) - killed) if due else []

        while len(killed) < kills:
            victim = draw.choice(wait_for(victims))
            time.sleep(draw.uniform(0.0, 0.3))
            os.kill(victim, signal.SIGKILL)
            killed.add(victim)
        out, _ = main.communicate(timeout=1500)
        assert main.returncode == 0, out
    found = stored_entries(url)
    assert [entry.number for entry in found] == [*range(trials)], out
    assert {entry.last.state for entry in found} == {TrialState.COMPLETE}, out
    for entry in found:
        states = Counter(attempt.state for attempt in entry.attempts)
        assert states[TrialState.COMPLETE] == 1
        assert states[TrialState.FAIL] == len(entry.attempts) - 1
    values = Counter(json.dumps(entry.last.params, sort_keys=True) for entry in found)
    assert values.most_common(1)[0][1] == 1
    lost = sum(len(entry.attempts) - 1 for entry in found)
    assert out.count("its worker died") == lost
    assert lost <= kills
    rows = table(folder)
    assert [row["state"] for row in rows] == ["done"] * trials
    assert search.main([str(folder / "best.yaml"), "--check"]) == 0
    secret = url.partition("://")[2].partition("@")[0].partition(":")[2].encode()
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert not secret or not [path for path in files if secret in path.read_bytes()]


SLOWER = settings("search.steps=300", "run.checkpoint_every=10", "run.validate_every=300")


@pytest.mark.slow
def test_two_more_commands_that_join_take_part_and_end_with_the_sweep(
    experiment_file: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    arguments = [add_sweep(experiment_file, trials=5), "--run", folder, *SLOWER]
    with started(*arguments) as main:
        wait_for(lambda: stored_entries(sqlite(folder)))
        with started(*arguments, "--worker") as one, started(*arguments, "--worker") as other:
            wait_for(lambda: len(runs(stored_entries(sqlite(folder)))) == 3)
            assert [process.wait(600) for process in (main, one, other)] == [0, 0, 0]
    assert [row["state"] for row in table(folder)] == ["done"] * 5


def checkpoints(folder: Path) -> set[int]:
    """When the last checkpoints of the trials' searches were saved."""
    found = folder.glob("trials/*/seed-0/search/seed-0/last.safetensors")
    return {path.stat().st_mtime_ns for path in found}


def is_asked_to_stop(pid: int) -> bool:
    """Whether SIGTERM waits for a paused process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    waiting = next(line for line in lines if line.startswith("ShdPnd:"))
    return bool(int(waiting.split()[1], 16) >> (signal.SIGTERM - 1) & 1)


def pause(workers: list[int], study: Path) -> None:
    """Stop processes, none of them while it holds the study: who reads it would wait for them."""
    while True:
        for worker in workers:
            os.kill(worker, signal.SIGSTOP)
            wait_for(lambda pid=worker: "\nState:\tT" in Path(f"/proc/{pid}/status").read_text())
        try:
            with closing(sqlite3.connect(study, timeout=0)) as database:
                database.execute("BEGIN EXCLUSIVE")
            return
        except sqlite3.OperationalError:
            for worker in workers:
                os.kill(worker, signal.SIGCONT)


@pytest.mark.slow
def test_a_sweep_that_was_ended_goes_on_from_its_checkpoints(
    experiment_file: Path, tmp_path: Path
) -> None:
    """By each signal in turn; all resumes of the trials together are at least as many.

    Workers pause until the signal is there, so that no trial ends meanwhile.
    """
    folder = tmp_path / "run"
    arguments = [add_sweep(experiment_file, trials=2), "--run", folder, "--workers", 2, *SLOWER]
    arguments += ["--set", "search.steps=600"]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        before = checkpoints(folder)
        with started(*arguments) as process:
            wait_for(lambda known=before: checkpoints(folder) - known)
            workers = workers_of(process.pid)
            pause(workers, folder / "sweep" / "study.db")
            process.send_signal(number)
            if number != signal.SIGKILL:
                wait_for(lambda pids=workers: all(map(is_asked_to_stop, pids)))
            for worker in workers:
                os.kill(worker, signal.SIGCONT)
            out, _ = process.communicate(timeout=120)
        wait_for(lambda pids=workers: not any(map(command_of, pids)))
        if number != signal.SIGKILL:
            assert process.returncode == 128 + number, out
            assert "stopping: each trial saves a checkpoint first" in out
            assert "Resume with:" in out
            assert "Traceback" not in out
            assert {row["state"] for row in table(folder)} == {"waiting"}
    again = run(*arguments)
    assert again.returncode == 0, again.stderr
    assert [row["state"] for row in table(folder)] == ["done"] * 2
    environments = folder.glob("trials/*/seed-0/search/seed-0/environment.json")
    resumed = [json.loads(path.read_text()).get("resumed", []) for path in environments]
    assert sum(map(len, resumed)) >= 3
