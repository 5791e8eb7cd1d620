"""How many cores of the machine this process may use."""

import os


def usable_cores() -> int:
    """Cores that this process may run on; all of the machine's where the system does not say."""
    return len(core_numbers()) or os.cpu_count() or 1


def core_numbers() -> frozenset[int]:
    """The system's numbers of those cores; none where it does not say."""
    # Linux alone has it: macOS and Windows bind no process to cores.
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset()
