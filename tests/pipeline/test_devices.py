"""The device of a run, and what is said of it."""

import pytest
import torch

from pipeline.devices import find_device, set_precision
from tests.pipeline.conftest import PlanWith


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
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], plan_with: PlanWith
) -> None:
    """Where NVIDIA's driver is there: its tool, or its file."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    plan_with("run.device=auto")
    said = capsys.readouterr().err
    assert said.startswith("warning: this machine has an NVIDIA driver, but torch ")
    assert "TORCH_INDEX=URL make setup" in said
    plan_with("run.device=cpu")
    assert "NVIDIA" not in capsys.readouterr().err
