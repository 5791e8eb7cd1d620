"""Warnings where more threads are asked for than there are free cores.

Threads that share a core wait for each other at the end of every product: two threads on a busy
machine were seen to train 647 tokens a second where one trained 9,000.
"""

from collections.abc import Callable

import torch

from assembly.workbench import Workbench
from utils.cores import (
    MOST_OTHER_CORES,
    CpuReading,
    core_numbers,
    other_cores,
    read_cpu,
    usable_cores,
)

# The kernel counts in hundredths of a second; less time says too little.
_LEAST_S = 0.1


def too_many_threads(threads: int, workers: int, cores: int) -> str | None:
    """A warning where runs at a time have more threads together than there are cores.

    Args:
        threads: of each run.
        workers: runs at a time.
        cores: that they share.
    """
    if threads * workers <= cores:
        return None
    why, remedy = "each run has a part of one", f"--workers {max(1, cores // threads)}"
    if threads > 1:
        why = "threads that share a core wait for each other, training may be many times slower"
        remedy += f", or --set run.threads={max(1, cores // workers)}"
    return f"warning: {workers} x {threads} threads for {cores} cores: {why}; give {remedy}"


def too_busy(
    before: CpuReading | None, after: CpuReading | None, *, threads: int, cores: int
) -> str | None:
    """A warning where a training has more threads than the machine has free cores.

    Args:
        before: the counters a moment ago.
        after: the counters now; None where the system has none.
        threads: of the training; one alone waits for nobody of its own.
        cores: that it may use, and that were counted.
    """
    if threads < 2 or before is None or after is None or after.at_s - before.at_s < _LEAST_S:
        return None
    others = other_cores(before, after)
    free = max(0.0, cores - others)
    if free + MOST_OTHER_CORES >= threads:
        return None
    return (
        f"warning: {threads} threads for {free:.1f} free cores (other processes use {others:.1f} "
        f"of {cores}): the threads wait for each other, and training may be many times slower; "
        f"stop the others, or --set run.threads={max(1, int(free + MOST_OTHER_CORES))}"
    )


def busy_lines(
    bench: Workbench,
    before: CpuReading | None,
    read: Callable[[], CpuReading | None] = lambda: read_cpu(core_numbers()),
) -> list[str]:
    """What a phase says of the other load of its cores before its first step.

    A share of time that a container's control group allows (`cpu.max`) is not known here.

    Args:
        bench: where it trains; on a GPU, and where several processes train together (of which each
            would take its like for others), nothing is said.
        before: the counters of the cores that it may use, when it began to be built.
        read: the counters now.
    """
    if bench.device.type != "cpu" or bench.ranks.world > 1:
        return []
    cores = usable_cores()
    line = too_busy(before, read(), threads=torch.get_num_threads(), cores=cores)
    return [] if line is None else [line]
