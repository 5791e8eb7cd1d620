"""Is the machine quiet? Cores that others use, from the kernel's counters.

Others are the processes of this system and, where it is a virtual machine, whoever its host gave
the time to that our processes waited for (the counter "steal").
"""

import os
import time
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


def read_cpu() -> CpuReading | None:
    """The counters now; None where the system does not offer them."""
    if not _STAT.exists():
        return None
    fields = [int(value) for value in _STAT.read_text().split("\n", 1)[0].split()[1:9]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = fields
    tick = os.sysconf("SC_CLK_TCK")
    own = os.times()
    return CpuReading(
        all_s=(user + nice + system + irq + softirq + steal) / tick,
        own_s=own.user + own.system,
        at_s=time.monotonic(),
    )


def other_cores(before: CpuReading, after: CpuReading) -> float:
    """Cores that others used between two readings."""
    others_s = (after.all_s - before.all_s) - (after.own_s - before.own_s)
    return max(0.0, others_s / max(after.at_s - before.at_s, 1e-6))
