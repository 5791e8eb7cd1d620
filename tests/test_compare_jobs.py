"""compare.py --workers with real processes: the same results, and Ctrl-C stops all of them."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pytest

import compare
import derive
from tests.runs import ROOT, assert_same, last_step, run, settings
from utils.cores import share_of_threads
from utils.files import read_rows

GIVEN = ("compare.baselines=[interleaved]", "run.figures=false")


def command(folder: Path, *texts: str) -> list[str]:
    arguments = [sys.executable, "compare.py", str(folder), "--workers", "2"]
    return [*arguments, *settings(*GIVEN, *texts)]


@pytest.fixture
def both(experiment_file: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A run with a derived layout, and a copy of it."""
    one, two = tmp_path / "one", tmp_path / "two"
    run(derive, experiment_file, "--run", one, "--method", "layout",
        *settings("derive.layout=a d d i"))  # fmt: skip
    shutil.copytree(one, two)
    return one, two


def phases(folder: Path) -> list[Path]:
    return sorted(folder.glob("retrain/*/seed-*"))


def assert_trained_alike(one: Path, two: Path, count: int) -> None:
    assert len(phases(one)) == count
    for phase, other in zip(phases(one), phases(two), strict=True):
        assert phase.relative_to(one) == other.relative_to(two)
        assert_same(phase, other)


@pytest.mark.slow
def test_processes_train_what_one_process_trains(both: tuple[Path, Path]) -> None:
    one, two = both
    seeds = "compare.seeds=[0, 1]"
    run(compare, one, *settings(*GIVEN, seeds))
    done = subprocess.run(command(two, seeds), cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert_trained_alike(one, two, 4)
    assert done.stdout.count("trained ") == 4
    recorded = [json.loads((phase / "environment.json").read_text()) for phase in phases(two)]
    assert {one["threads"] for one in recorded} == {share_of_threads(2)}
    (given,) = read_rows(two / "commands.jsonl")
    assert given["command"] == shlex.join(["python", *command(two, seeds)[1:]])
    assert json.loads((two / "comparison.json").read_text())["rows"][0]["name"] == "layout-addi"


def reached(files: Iterable[Path], step: int) -> bool:
    """Whether the trainings that write these files have all logged a step."""
    return all(last_step(file) >= step for file in files)


@pytest.mark.slow
def test_ctrl_c_stops_all_after_a_checkpoint_and_the_same_command_goes_on(
    both: tuple[Path, Path],
) -> None:
    one, two = both
    steps = "retrain.steps=400"
    run(compare, one, *settings(*GIVEN, steps))
    logs = [two / f"retrain/{name}/seed-0/metrics.jsonl" for name in ("layout-addi", "interleaved")]
    process = subprocess.Popen(
        command(two, steps), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    while process.poll() is None and not reached(logs, 20):
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.01)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130, error
    assert "stopped by SIGINT; the state is saved. Resume with:" in error
    assert "--workers 2" in error.splitlines()[-1]
    assert "Traceback" not in error
    assert not reached(logs, 400)
    for log in logs:
        assert (log.parent / "last.safetensors").exists()
        assert not (log.parent / "result.json").exists()
    again = subprocess.run(command(two, steps), cwd=ROOT, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert_trained_alike(one, two, 2)
