"""The device that a run computes on, its precision, and a warning where threads lack cores."""

import os
import re
import shutil
from pathlib import Path

import torch

from training.launch import Launch

_DRIVER = Path("/proc/driver/nvidia/version")


def find_device(name: str, key: str = "run.device") -> torch.device:
    """The device of a name; auto is a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"{key}: {name} is not there ({torch.cuda.device_count()} CUDA devices found); "
            f"{_mismatch() or 'use cpu or auto'}"
        )
    if device.index is not None:
        # Else the current GPU's generator would be saved and set, and not this one's.
        torch.cuda.set_device(device)
    return device


def set_precision(precision: str, device: torch.device) -> str | None:
    """Let float32 products be those of a precision; a remark where a GPU could be much faster.

    Raises:
        ValueError: the device does not have it.
    """
    new = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
    if not new and (precision == "tf32" or (precision == "bfloat16" and device.type == "cuda")):
        raise ValueError(
            f"run.precision: {precision} needs an NVIDIA GPU of compute capability 8.0 or later, "
            f"and the device is {device}; set run.precision=float32"
        )
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    if new and precision == "float32":
        return "run.precision is float32: this GPU is faster with run.precision=tf32 or bfloat16"
    return None


def missed_gpu() -> str | None:
    """A warning where `run.device: auto` takes the CPU though there is a driver of NVIDIA's."""
    why = _mismatch()
    return why and f"warning: the CPU is used: {why}, or set run.device=cpu"


def _mismatch() -> str | None:
    """What is said where torch finds no GPU though the machine has a driver of NVIDIA's."""
    if torch.cuda.is_available() or not (_DRIVER.exists() or shutil.which("nvidia-smi")):
        return None
    return (
        f"this machine has an NVIDIA driver, but torch {torch.__version__} (built for "
        f"CUDA {torch.version.cuda or 'none'}) finds no GPU: install a newer driver, or a torch "
        "for this one (TORCH_INDEX=URL make setup)"
    )


def share_of_gpus(place: int) -> str | None:
    """The GPU of one of several workers, as CUDA_VISIBLE_DEVICES names it."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        visible = ",".join(map(str, range(torch.cuda.device_count())))
    gpus = [name for name in visible.split(",") if name]
    return gpus[place % len(gpus)] if gpus else None


def gpu_of(launch: Launch, name: str) -> torch.device:
    """The GPU of a process among several on its machine, made its default."""
    gpus = torch.cuda.device_count()
    if name not in ("auto", "cuda") or launch.local_world > gpus:
        raise ValueError(
            f"run.device: {name} with {launch.local_world} processes and {gpus} GPUs on this "
            "machine; each process takes one GPU: start no more, with run.device=auto or cuda, or "
            "give cpu"
        )
    device = torch.device("cuda", launch.local_rank)
    torch.cuda.set_device(device)
    return device


def device_of(name: str) -> torch.device:
    """The device that `--device` names; ValueError where it is none, or not there."""
    if not re.fullmatch(r"auto|cpu|cuda(:\d{1,3})?", name):
        raise ValueError(f"--device: must be auto, cpu, cuda or cuda:N, found {name!r:.40}")
    return find_device(name, "--device")


def too_many_threads(threads: int, workers: int, cores: int) -> str | None:
    """A warning where `workers` runs of so many threads each share fewer cores."""
    if threads * workers <= cores:
        return None
    why, remedy = "each run has less than one core", f"--workers {max(1, cores // threads)}"
    if threads > 1:
        why = "threads that share a core wait for each other, which may be many times slower"
        remedy += f", or --set run.threads={max(1, cores // workers)}"
    return f"warning: {workers} x {threads} threads for {cores} cores: {why}; give {remedy}"
