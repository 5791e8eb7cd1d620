"""Cores: how many this process may use, and how many others use meanwhile.

Others are the processes of this system and, where it is a virtual machine, whoever its host gave
the time to that our processes waited for (the counter "steal").
"""

import os
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

_STAT = Path("/proc/stat")
MOST_OTHER_CORES = 0.25


def usable_cores() -> int:
    """Cores that this process may run on; all of the machine's where the system does not say."""
    return len(core_numbers()) or os.cpu_count() or 1


def core_numbers() -> frozenset[int]:
    """The system's numbers of those cores; none where it does not say."""
    # Linux alone has it: macOS and Windows bind no process to cores.
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset()


def share_of_threads(workers: int) -> int:
    """Threads of each of so many runs: what OMP_NUM_THREADS says, else a share of the cores."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, int(given) if given.isdecimal() else usable_cores() // workers)


@dataclass(frozen=True)
class CpuReading:
    """Seconds of CPU used by everybody or stolen, those of this process, and when."""

    all_s: float
    own_s: float
    at_s: float


def read_cpu(cores: Collection[int] = ()) -> CpuReading | None:
    """The counters of these cores now; None where the system does not offer them.

    Without numbers, or where not each of them has counters of its own, those of all cores.
    """
    if not _STAT.exists():
        return None
    rows = (line.split() for line in _STAT.read_text().splitlines() if line.startswith("cpu"))
    ticks = {name: _used(values) for name, *values in rows}
    names = [f"cpu{number}" for number in cores]
    used = sum(ticks[name] for name in names) if names and ticks.keys() >= set(names) else None
    tick = os.sysconf("SC_CLK_TCK")
    ours = os.times()
    return CpuReading(
        all_s=(ticks["cpu"] if used is None else used) / tick,
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
