"""Cores that this process may use."""

import os


def usable_cores() -> int:
    """Cores that this process may run on; all of the machine's where the system does not say."""
    # Linux alone has it: macOS and Windows bind no process to cores.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def share_of_threads(workers: int) -> int:
    """Threads of each of so many runs: what OMP_NUM_THREADS says, else a share of the cores."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, int(given) if given.isdecimal() else usable_cores() // workers)
