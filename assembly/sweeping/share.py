"""Which part of a machine a worker uses: CPU threads, or one GPU."""

import os
import socket
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from training.run_dir import commit
from utils.cores import usable_cores


@dataclass(frozen=True)
class Share:
    """One worker's part of a machine.

    Attributes:
        place: which of the workers that share the machine, from 0.
        workers: how many share it.
    """

    place: int = 0
    workers: int = 1

    @property
    def threads(self) -> int:
        """CPU threads of each of its trials."""
        return max(1, usable_cores() // self.workers)

    @cached_property
    def environment(self) -> dict[str, str]:
        """Variables of its trials' processes: the GPU that is theirs, where there is one."""
        there = os.environ.get("CUDA_VISIBLE_DEVICES")
        if there is not None:
            gpus = [name for name in there.split(",") if name]
        else:
            gpus = [str(number) for number in range(torch.cuda.device_count())]
        return {"CUDA_VISIBLE_DEVICES": gpus[self.place % len(gpus)]} if gpus else {}

    def facts(self) -> dict[str, Any]:
        """What is recorded of it with each trial."""
        return {
            "host": socket.gethostname(),
            "gpu": self.environment.get("CUDA_VISIBLE_DEVICES"),
            "torch": torch.__version__,
            "commit": commit(),
        }


def parse_share(text: str) -> Share:
    """A share from `I/N`.

    Raises:
        ValueError: it is none.
    """
    place, _, workers = text.partition("/")
    if not (place.isdecimal() and workers.isdecimal() and int(place) < int(workers)):
        raise ValueError(f"--share: expected I/N with I below N, for example 0/4, found {text!r}")
    return Share(int(place), int(workers))
