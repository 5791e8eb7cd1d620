"""Killed by SIGKILL at random moments and started again, a run ends as one never killed (law 8)."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.runs import LAYOUT, RETRAIN, ROOT, SEARCH, settings
from tests.runs import assert_same as assert_same  # tests of packages take it from here

KILLS = 5


def command(script: str, experiment: Path, run: Path, *texts: str) -> list[str]:
    return [sys.executable, script, str(experiment), "--run", str(run), *settings(*texts)]


def to_the_end(arguments: list[str]) -> None:
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def killed_on_the_way(arguments: list[str], metrics: Path, steps: int) -> None:
    """Start and kill, KILLS times, each time at a random moment after a little more was done."""
    generator = random.Random(len(arguments))
    for kill in range(KILLS):
        goal = (kill + 1) * steps // (KILLS + 2)
        killed_once(arguments, metrics, goal, rest_s=generator.random() * 0.3)


def killed_once(arguments: list[str], metrics: Path, after: int, rest_s: float = 0.0) -> None:
    """Start, and kill some time after a step was logged."""
    process = subprocess.Popen(
        arguments, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while process.poll() is None and last_step(metrics) < after:
        time.sleep(0.005)
    time.sleep(rest_s)
    assert process.poll() is None, "ended before it could be killed: more steps are needed"
    process.send_signal(signal.SIGKILL)
    process.wait()


def last_step(metrics: Path) -> int:
    if not metrics.exists():
        return 0
    lines = metrics.read_bytes().split(b"\n")[:-1]
    text = lines[-1].decode() if lines else '"step": 0,'
    return int(text.split('"step": ')[1].split(",")[0])


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ["soft", "single_path"])
def test_law_8_search_and_retrain_survive_five_kills_each(
    experiment_file: Path, tmp_path: Path, estimator: str
) -> None:
    texts = [
        "search.steps=500",
        "retrain.steps=1000",
        f"search.estimator={estimator}",
        "run.checkpoint_every=13",
        "run.validate_every=50",
    ]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    to_the_end(command("search.py", experiment_file, whole, *texts))
    arguments = command("search.py", experiment_file, killed, *texts)
    killed_on_the_way(arguments, killed / SEARCH / "metrics.jsonl", 500)
    to_the_end(arguments)
    assert_same(whole / SEARCH, killed / SEARCH)
    to_the_end([*command("retrain.py", experiment_file, whole, *texts), *LAYOUT])
    arguments = [*command("retrain.py", experiment_file, killed, *texts), *LAYOUT]
    killed_on_the_way(arguments, killed / RETRAIN / "metrics.jsonl", 1000)
    to_the_end(arguments)
    assert_same(whole / RETRAIN, killed / RETRAIN)
