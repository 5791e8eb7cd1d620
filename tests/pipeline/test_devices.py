"""The device of a run, and what is said of it."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pipeline.devices import (
    busy_lines,
    find_device,
    missed_gpu,
    set_precision,
)
from pipeline.experiment import load_experiment
from pipeline.plan import set_up
from training.distributed import Ranks
from training.step import Forward
from utils.cores import CpuReading

START = CpuReading(all_s=100.0, own_s=10.0, at_s=50.0)
ALONE_ON_CPU = Forward(torch.device("cpu"), "float32")


def later(others: float, own: float = 1.0, after_s: float = 2.0) -> CpuReading:
    """The counters after some seconds, with so many cores used meanwhile."""
    return CpuReading(
        all_s=START.all_s + after_s * (others + own),
        own_s=START.own_s + after_s * own,
        at_s=START.at_s + after_s,
    )


@pytest.mark.parametrize(
    ("others", "threads", "cores", "remedy"),
    [
        (1.9, 2, 2, "run.threads=1"),
        (5.0, 4, 8, "run.threads=3"),
        (0.0, 4, 2, "run.threads=2"),
        (0.2, 2, 2, None),
        (1.9, 1, 2, None),
    ],
)
def test_a_training_with_more_threads_than_free_cores_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, others: float, threads: int, cores: int, remedy: str | None
) -> None:
    monkeypatch.setattr("torch.get_num_threads", lambda: threads)
    monkeypatch.setattr("pipeline.devices.usable_cores", lambda: cores)
    lines = busy_lines(ALONE_ON_CPU, START, lambda: later(others))
    assert len(lines) == (remedy is not None)
    for line in lines:
        assert line.startswith(f"warning: {threads} threads for {cores - others:.1f} free cores")
        assert line.endswith(str(remedy))


def test_a_phase_warns_of_its_own_threads_on_a_cpu_where_the_load_is_known(
    experiment_file: Path, tmp_path: Path
) -> None:
    set_up(load_experiment(experiment_file, ["run.threads=2"]), tmp_path / "run")
    assert torch.get_num_threads() == 2
    busy = later(1e6)
    (line,) = busy_lines(ALONE_ON_CPU, START, lambda: busy)
    assert line.startswith("warning: 2 threads for 0.0 free cores")
    assert busy_lines(ALONE_ON_CPU, START, lambda: None) == []
    assert busy_lines(ALONE_ON_CPU, None, lambda: busy) == []
    assert busy_lines(ALONE_ON_CPU, START, lambda: later(1e6, after_s=0.05)) == []
    on_gpu = replace(ALONE_ON_CPU, device=torch.device("cuda"))
    assert busy_lines(on_gpu, START, lambda: busy) == []
    # The other processes of one training are no strangers.
    assert busy_lines(replace(ALONE_ON_CPU, ranks=Ranks(world=2)), START, lambda: busy) == []


def test_cores_that_the_process_may_not_use_are_not_free_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("torch.get_num_threads", lambda: 2)
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {5, 9}, raising=False)
    (line,) = busy_lines(ALONE_ON_CPU, START, lambda: later(1.0))
    assert line.startswith("warning: 2 threads for 1.0 free cores (other processes use 1.0 of 2)")


def pretend(monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int]) -> list[torch.device]:
    """Two GPUs of this capability; returned is which of them was made the current one."""
    current: list[torch.device] = []
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.cuda.set_device", current.append)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: capability)
    monkeypatch.setattr("torch.set_float32_matmul_precision", lambda precision: None)
    return current


def test_a_numbered_gpu_is_made_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the checkpoint would hold the generator of another one."""
    current = pretend(monkeypatch, (9, 0))
    assert find_device("auto") == torch.device("cuda")
    assert current == []
    assert find_device("cuda:1") == torch.device("cuda:1")
    assert current == [torch.device("cuda:1")]
    with pytest.raises(ValueError, match=r"cuda:9 is not there \(2 CUDA devices found\)"):
        find_device("cuda:9")


@pytest.mark.parametrize(
    ("precision", "device", "capability"),
    [("tf32", "cpu", (9, 0)), ("tf32", "cuda", (7, 5)), ("bfloat16", "cuda", (7, 5))],
)
def test_a_precision_that_the_device_lacks_is_refused(
    monkeypatch: pytest.MonkeyPatch, precision: str, device: str, capability: tuple[int, int]
) -> None:
    pretend(monkeypatch, capability)
    with pytest.raises(
        ValueError, match=f"run.precision: {precision} needs .* the device is {device}"
    ):
        set_precision(precision, torch.device(device))


def test_float32_on_a_gpu_that_has_better_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, (8, 0))
    gpu, cpu = torch.device("cuda"), torch.device("cpu")
    assert "tf32" in (set_precision("float32", gpu) or "")
    assert set_precision("tf32", gpu) is set_precision("bfloat16", cpu) is None
    assert set_precision("float32", cpu) is None


def test_a_gpu_that_torch_does_not_find_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    driver = tmp_path / "version"
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert missed_gpu(driver) is None
    driver.write_text("NVRM")
    assert "TORCH_INDEX" in (missed_gpu(driver) or "")
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert missed_gpu(driver) is None
