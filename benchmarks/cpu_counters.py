"""Counters of the machine's cores: how many others use while something is timed.

Others are the processes of this system and, where it is a virtual machine, whoever its host gave
the time to that our processes waited for (the counter "steal").
"""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_STAT = Path("/proc/stat")
MOST_OTHER_CORES = 0.25


@dataclass(frozen=True)
class CpuReading:
    """Seconds of CPU used by everybody or stolen, those of this process, and when."""

    all_s: float
    own_s: float
    at_s: float


def most_others(device: str) -> float:
    """How many cores others may use while a device is timed; a GPU's times show it by their range.

    On a server of GPUs somebody always uses some.
    """
    return MOST_OTHER_CORES if device == "cpu" else float("inf")


def read_cpu() -> CpuReading | None:
    """The counters of all cores now; None where the system does not offer them."""
    if not _STAT.exists():
        return None
    _, *values = _STAT.read_text().splitlines()[0].split()
    ours = os.times()
    return CpuReading(
        all_s=_used(values) / os.sysconf("SC_CLK_TCK"),
        own_s=ours.user + ours.system,
        at_s=time.monotonic(),
    )


def _used(values: Sequence[str]) -> int:
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, values[:8])
    return user + nice + system + irq + softirq + steal


def other_cores(before: CpuReading, after: CpuReading) -> float:
    """Cores that others used between two readings."""
    others_s = (after.all_s - before.all_s) - (after.own_s - before.own_s)
    return max(0.0, others_s / max(after.at_s - before.at_s, 1e-6))
