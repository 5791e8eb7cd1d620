"""Warnings of more threads than free cores; the counters come in as arguments."""

from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline import jobs
from pipeline.context import set_up
from pipeline.experiment import load_experiment
from pipeline.jobs import Job, run_all
from pipeline.resources import busy_lines, too_busy, too_many_threads
from training.signals import StopRequest
from utils.cores import CpuReading

START = CpuReading(all_s=100.0, own_s=10.0, at_s=50.0)


def later(others: float, own: float = 1.0, after_s: float = 2.0) -> CpuReading:
    """The counters after some seconds, with so many cores used meanwhile."""
    return CpuReading(
        all_s=START.all_s + after_s * (others + own),
        own_s=START.own_s + after_s * own,
        at_s=START.at_s + after_s,
    )


@pytest.mark.parametrize(
    ("threads", "workers", "cores", "remedy"),
    [
        (2, 2, 2, "give --workers 1, or --set run.threads=1"),
        (4, 3, 8, "give --workers 2, or --set run.threads=2"),
        (1, 5, 2, "give --workers 2"),
        (4, 1, 2, "give --workers 1, or --set run.threads=2"),
        (1, 2, 2, None),
        (2, 2, 4, None),
    ],
)
def test_runs_that_would_share_cores_are_warned_of(
    threads: int, workers: int, cores: int, remedy: str | None
) -> None:
    line = too_many_threads(threads, workers, cores)
    if remedy is None:
        assert line is None
    else:
        assert line is not None
        assert line.startswith(f"warning: {workers} x {threads} threads for {cores} cores")
        assert line.endswith(remedy)


@pytest.mark.parametrize(
    ("others", "threads", "cores", "remedy"),
    [
        (1.9, 2, 2, "run.threads=1"),
        (0.5, 2, 2, "run.threads=1"),
        (5.0, 4, 8, "run.threads=3"),
        (0.0, 4, 2, "run.threads=2"),
        (0.2, 2, 2, None),
        (4.0, 4, 8, None),
        (1.9, 1, 2, None),
    ],
)
def test_a_training_with_more_threads_than_free_cores_is_warned_of(
    others: float, threads: int, cores: int, remedy: str | None
) -> None:
    line = too_busy(START, later(others), threads=threads, cores=cores)
    if remedy is None:
        assert line is None
    else:
        assert line is not None
        assert line.startswith(f"warning: {threads} threads for {cores - others:.1f} free cores")
        assert line.endswith(remedy)


def test_where_nothing_can_be_known_nothing_is_said() -> None:
    assert too_busy(None, later(2.0), threads=2, cores=2) is None
    assert too_busy(START, None, threads=2, cores=2) is None
    assert too_busy(START, later(2.0, after_s=0.05), threads=2, cores=2) is None


def test_a_phase_says_it_of_its_own_threads_on_a_cpu_alone(
    experiment_file: Path, tmp_path: Path
) -> None:
    device = set_up(load_experiment(experiment_file, ["run.threads=2"]), tmp_path / "run").device
    assert torch.get_num_threads() == 2
    busy = later(1e6)
    (line,) = busy_lines(device, 1, START, lambda: busy)
    assert line.startswith("warning: 2 threads for 0.0 free cores")
    assert busy_lines(device, 1, START, lambda: None) == []
    assert busy_lines(torch.device("cuda"), 1, START, lambda: busy) == []
    # The other processes of one training are no strangers.
    assert busy_lines(device, 2, START, lambda: busy) == []


def test_cores_that_the_process_may_not_use_are_not_free_for_it(
    experiment_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = set_up(load_experiment(experiment_file, ["run.threads=2"]), tmp_path / "run").device
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {5, 9}, raising=False)
    (line,) = busy_lines(device, 1, START, lambda: later(1.0))
    assert line.startswith("warning: 2 threads for 1.0 free cores (other processes use 1.0 of 2)")


def test_several_runs_with_asked_threads_are_warned_of_once(
    experiment_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(jobs, "usable_cores", lambda: 2)
    monkeypatch.setattr(jobs, "run_scripts", lambda *arguments: None)

    def said(workers: int, **settings: Any) -> str:
        overrides = [f"{key}={value}" for key, value in settings.items()]
        experiment = load_experiment(experiment_file, overrides)
        jobs = [Job(name, experiment, ("derive",), tmp_path / name) for name in "abc"]
        run_all(jobs, workers=workers, stop=StopRequest(), done=lambda job: None)
        return capsys.readouterr().out

    assert said(2, **{"run.threads": 1}) == ""
    assert said(2, **{"run.threads": "null"}) == ""
    warning = said(2, **{"run.threads": 2})
    assert warning.startswith("warning: 2 x 2 threads for 2 cores")
    assert warning.count("\n") == 1
    # There are three jobs, however many may run at a time.
    assert said(9, **{"run.threads": 1}).startswith("warning: 3 x 1 threads")
