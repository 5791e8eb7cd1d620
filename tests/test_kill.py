"""Killed by SIGKILL at random moments and started again, a run ends as one never killed (law 8)."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import retrain
import search
from tests.runs import LAYOUT, RETRAIN, ROOT, SEARCH, assert_same, last_step, run, settings

KILLS = 5


def command(script: str, experiment: Path, folder: Path, *texts: str) -> list[str]:
    return [sys.executable, script, str(experiment), "--run", str(folder), *settings(*texts)]


def to_the_end(arguments: list[str]) -> None:
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def killed_once(arguments: list[str], metrics: Path, after: int, rest_s: float) -> None:
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "phase", "more"), [(search, SEARCH, []), (retrain, RETRAIN, LAYOUT)]
)
def test_law_8_a_phase_survives_five_kills(
    experiment_file: Path, tmp_path: Path, script: Any, phase: str, more: list[str]
) -> None:
    """The one never killed runs in this process, the others each in their own."""
    texts = [f"{script.__name__}.steps=240", "run.checkpoint_every=13", "run.validate_every=50"]
    texts.append("run.figures=false")
    run(script, experiment_file, "--run", tmp_path / "whole", *settings(*texts), *more)
    killed = tmp_path / "killed"
    arguments = [*command(f"{script.__name__}.py", experiment_file, killed, *texts), *more]
    generator = random.Random(len(arguments))
    for kill in range(1, KILLS + 1):
        goal, rest_s = kill * 240 // (KILLS + 3), generator.random() * 0.05
        killed_once(arguments, killed / phase / "metrics.jsonl", goal, rest_s)
    to_the_end(arguments)
    assert_same(tmp_path / "whole" / phase, killed / phase)
