"""How many cores of the machine this process may use."""

import os


def usable_cores() -> int:
    """Cores that this process may run on; all of the machine's where the system does not say."""
    # Linux alone has it: macOS and Windows bind no process to cores.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
