"""Killed by SIGKILL at random moments and started again, a run ends as one never killed (law 8)."""

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.test_pipeline import ROOT, rows

KILLS = 5


def command(script: str, experiment: Path, run: Path, *settings: str) -> list[str]:
    extra = [part for setting in settings for part in ("--set", setting)]
    return [sys.executable, script, str(experiment), "--run", str(run), *extra]


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


def assert_same(one: Path, two: Path) -> None:
    assert rows(one / "metrics.jsonl") == rows(two / "metrics.jsonl")
    best = [sorted(path.name for path in folder.glob("best-*")) for folder in (one, two)]
    assert best[0] == best[1]
    for name in ("last.safetensors", *best[0]):
        tensors: list[dict[str, Any]] = [load_file(folder / name) for folder in (one, two)]
        assert tensors[0].keys() == tensors[1].keys()
        assert all(torch.equal(tensors[0][key], tensors[1][key]) for key in tensors[0])
    assert not [path for path in two.iterdir() if path.name.endswith(".tmp")]


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ["soft", "single_path"])
def test_law_8_search_and_retrain_survive_five_kills_each(
    experiment_file: Path, tmp_path: Path, estimator: str
) -> None:
    settings = [
        "search.steps=500",
        "retrain.steps=1000",
        f"search.estimator={estimator}",
        "run.checkpoint_every=13",
        "run.validate_every=50",
    ]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    to_the_end(command("search.py", experiment_file, whole, *settings))
    arguments = command("search.py", experiment_file, killed, *settings)
    killed_on_the_way(arguments, killed / "search/seed-0/metrics.jsonl", 500)
    to_the_end(arguments)
    assert_same(whole / "search/seed-0", killed / "search/seed-0")
    for name in ("pi.npz", "pi.csv"):
        one, two = (folder / "search/seed-0" / name for folder in (whole, killed))
        assert one.read_bytes() == two.read_bytes()

    layout = ["--layout", "a d a d"]
    to_the_end([*command("retrain.py", experiment_file, whole, *settings), *layout])
    arguments = [*command("retrain.py", experiment_file, killed, *settings), *layout]
    place = "retrain/layout-adad/seed-0"
    killed_on_the_way(arguments, killed / place / "metrics.jsonl", 1000)
    to_the_end(arguments)
    assert_same(whole / place, killed / place)
    one, two = (folder / place / "result.json" for folder in (whole, killed))
    assert load_result(one) == load_result(two)


def load_result(path: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(path.read_text())
    del result["elapsed_s"]
    return result
