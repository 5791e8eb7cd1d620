"""The cores that a process may use, also where the system binds no process to cores."""

import os
from pathlib import Path

import pytest

from training.distributed import Ranks
from utils.cores import usable_cores

ROOT = Path(__file__).resolve().parents[2]


def test_cores_are_those_that_the_process_may_run_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 3, 5}, raising=False)
    assert usable_cores() == 3
    assert Ranks(local_world=2).threads == 1


def test_without_bound_processes_all_cores_are_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("os.sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert usable_cores() == 6
    assert Ranks(local_world=2).threads == 3
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usable_cores() == 1


def test_nobody_else_asks_for_what_some_systems_lack() -> None:
    askers = [
        path.relative_to(ROOT).as_posix()
        for folder in (
            "pipeline",
            "benchmarks",
            "data",
            "model",
            "hpo",
            "nas",
            "report",
            "tools",
            "training",
            "utils",
        )
        for path in (ROOT / folder).rglob("*.py")
        if "sched_getaffinity" in path.read_text(encoding="utf-8")
    ]
    assert askers == ["utils/cores.py"]
