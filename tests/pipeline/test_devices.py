"""The device of a run, and what is said of it."""

import re

import pytest
import torch

from pipeline.devices import find_device, gpu_of, set_precision
from tests.pipeline.conftest import PlanWith
from training.launch import Launch


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


def test_each_process_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    current = pretend(monkeypatch, (9, 0))
    assert gpu_of(Launch(3, 4, 1, 2, 2), "auto") == torch.device("cuda:1")
    assert current == [torch.device("cuda:1")]
    for launch, name in ((Launch(2, 3, 2, 3, 1), "auto"), (Launch(1, 2, 1, 2, 1), "cuda:1")):
        words = f"{name} with {launch.local_world} processes and 2 GPUs"
        with pytest.raises(ValueError, match=words):
            gpu_of(launch, name)


def test_a_precision_that_the_device_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = [("tf32", "cpu", 9), ("tf32", "cuda", 7), ("bfloat16", "cuda", 7)]
    for precision, device, major in lacking:
        pretend(monkeypatch, (major, 5))
        words = f"run.precision: {precision} needs .* the device is {device}"
        with pytest.raises(ValueError, match=words):
            set_precision(precision, torch.device(device))


def test_float32_on_a_gpu_that_has_better_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, (8, 0))
    gpu, cpu = torch.device("cuda"), torch.device("cpu")
    assert "tf32" in (set_precision("float32", gpu) or "")
    assert set_precision("tf32", gpu) is set_precision("bfloat16", cpu) is None
    assert set_precision("float32", cpu) is None


def test_a_gpu_that_torch_does_not_find_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], plan_with: PlanWith
) -> None:
    """Where NVIDIA's driver is there: its tool, or its file."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    plan_with("run.device=auto")
    words = "this machine has an NVIDIA driver, but torch .*TORCH_INDEX=URL make setup"
    assert re.match(f"warning: the CPU is used: {words}", capsys.readouterr().err)
    plan_with("run.device=cpu")
    assert "NVIDIA" not in capsys.readouterr().err
    with pytest.raises(ValueError, match=rf"cuda is not there \(0 CUDA devices found\); {words}"):
        plan_with("run.device=cuda")
