"""The device that a run, or one process of it, computes on."""

import torch

from training.launch import Launch


def find_device(name: str, key: str = "run.device") -> torch.device:
    """The device of a name; auto is a GPU where there is one.

    Raises:
        ValueError: it is not there; the message begins with `key`.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"{key}: {name} is not there ({torch.cuda.device_count()} CUDA devices found); "
            "use cpu or auto"
        )
    return device


def gpu_of(launch: Launch, name: str) -> torch.device:
    """The GPU of a process among several on its machine, made its default.

    Raises:
        ValueError: there are fewer GPUs than processes, or the experiment names one of its own.
    """
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
