"""Warnings where runs have more threads than there are free cores.

Threads that share a core wait for each other at the end of every product: two threads on a busy
machine were seen to train 647 tokens a second where one trained 9,000.
"""

from collections.abc import Callable

import torch

from training.step import Forward
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


def too_many_threads(
    threads: int, workers: int, cores: int, option: str = "--workers"
) -> str | None:
    """A warning where `workers` runs of so many threads each share fewer cores."""
    if threads * workers <= cores:
        return None
    why, remedy = "each run has a part of one", f"{option} {max(1, cores // threads)}"
    if threads > 1:
        why = "threads that share a core wait for each other, training may be many times slower"
        remedy += f", or --set run.threads={max(1, cores // workers)}"
    return f"warning: {workers} x {threads} threads for {cores} cores: {why}; give {remedy}"


def busy_lines(
    forward: Forward,
    before: CpuReading | None,
    read: Callable[[], CpuReading | None] = lambda: read_cpu(core_numbers()),
) -> list[str]:
    """A warning where a phase has more threads than the machine has free cores.

    None on a GPU, of one thread, which waits for nobody of its own, and where several processes
    train together, of which each would take the others for strangers. A share of time that a
    container's control group allows (`cpu.max`) is not known here.

    Args:
        forward: on which device, and which processes.
        before: the counters of the cores that it may use, when it began to be built.
        read: the counters now; None where the system has none.
    """
    threads, cores = torch.get_num_threads(), usable_cores()
    if forward.device.type != "cpu" or forward.ranks.world > 1 or threads < 2:
        return []
    after = read()
    if before is None or after is None or after.at_s - before.at_s < _LEAST_S:
        return []
    others = other_cores(before, after)
    free = max(0.0, cores - others)
    if free + MOST_OTHER_CORES >= threads:
        return []
    return [
        f"warning: {threads} threads for {free:.1f} free cores (other processes use {others:.1f} "
        f"of {cores}): the threads wait for each other, and training may be many times slower; "
        f"stop the others, or --set run.threads={max(1, int(free + MOST_OTHER_CORES))}"
    ]
