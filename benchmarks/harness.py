"""Timing several sides of a claim in turn, in one run, on a machine that is otherwise quiet."""

import json
import multiprocessing
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

import torch

from benchmarks.cpu_counters import MOST_OTHER_CORES, other_cores, read_cpu
from training.run_dir import commit, processor
from training.runtime import keep_freed_memory
from utils.cores import usable_cores
from utils.files import write_whole

MOST_SPOILT = 3
# Makes a step in the process that takes it.
Maker = Callable[..., Callable[[], object]]
_Kind = TypeVar("_Kind")


@dataclass(frozen=True)
class Side:
    """What a process of its own measures: `make(*arguments)` gives the step that is timed.

    Attributes:
        make: a function at the top of a module.
        arguments: what it is called with.
        keeps_memory: whether the process gets our allocator settings.
    """

    make: Maker
    arguments: tuple[object, ...] = ()
    keeps_memory: bool = True


@dataclass(frozen=True)
class Timings:
    """Seconds of one call by side, one figure for each round; round i of all sides is one turn."""

    seconds: dict[str, list[float]]

    def ratios(self, side: str, to: str) -> list[float]:
        """How many times longer `side` took than `to`, round by round."""
        return [a / b for a, b in zip(self.seconds[side], self.seconds[to], strict=True)]

    def ratio(self, side: str, to: str) -> float:
        """The median of the rounds' ratios."""
        return statistics.median(self.ratios(side, to))

    def row(self, side: str) -> dict[str, Any]:
        """Median, range and rounds of a side in milliseconds."""
        found = [1e3 * second for second in self.seconds[side]]
        ends = {"low_ms": min(found), "high_ms": max(found)}
        return {"median_ms": statistics.median(found), **ends, "rounds_ms": found}


def in_turn(
    sides: Mapping[str, Side],
    *,
    rounds: int,
    calls: int,
    warm: int = 5,
    most_others: float = MOST_OTHER_CORES,
) -> Timings:
    """Time all sides in turn, each in a process of its own, the first one another in each round.

    A process of its own keeps the caches and the heap of one side from the other's. Only the side
    whose turn it is runs.

    Args:
        sides: what is timed, by name.
        rounds: figures of each side.
        calls: calls behind one figure.
        warm: untimed calls of each side before the first round.
        most_others: cores that others may use in a round that counts.

    Raises:
        ValueError: other processes used the machine in more than 3 times the rounds wanted.
    """
    with ExitStack() as at_the_end:
        workers = {name: at_the_end.enter_context(_Worker(side)) for name, side in sides.items()}
        for worker in workers.values():
            worker.seconds(warm)

        def take(turn: int) -> tuple[dict[str, float], float]:
            order = rotated(workers, turn).items()
            both = {name: worker.seconds(calls) for name, worker in order}
            own_s = sum(used_s for _, used_s in both.values())
            return {name: second for name, (second, _) in both.items()}, own_s

        found = quiet_rounds(take, rounds, most_others)
    return Timings({name: [each[name] for each in found] for name in sides})


def quiet_rounds(
    take: Callable[[int], tuple[dict[str, float], float]],
    wanted: int,
    most_others: float = MOST_OTHER_CORES,
) -> list[dict[str, float]]:
    """So many rounds in which nobody else used the machine.

    `take` gives the figures of a turn and the seconds of CPU that they took.

    Raises:
        ValueError: other processes used the machine in more than 3 times the rounds wanted.
    """
    found: list[dict[str, float]] = []
    for _ in range((1 + MOST_SPOILT) * wanted):
        before = read_cpu()
        figures, own_s = take(len(found))
        after, others = read_cpu(), 0.0
        if before is not None and after is not None:
            others = other_cores(before, replace(after, own_s=after.own_s + own_s))
        if others <= most_others:
            found.append(figures)
        if len(found) == wanted:
            return found
    raise ValueError(
        f"other processes use {others:.1f} cores, at most {most_others} may; "
        "stop them and measure again"
    )


def rotated(sides: Mapping[str, _Kind], turn: int) -> dict[str, _Kind]:
    """The sides in the order of a turn: in each another one is the first."""
    names = [*sides]
    first = turn % len(names)
    return {name: sides[name] for name in names[first:] + names[:first]}


class _Worker:
    """The process of one side."""

    def __init__(self, side: Side) -> None:
        context = multiprocessing.get_context("spawn")
        self._ours, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs, side), daemon=True)
        self._process.start()

    def __enter__(self) -> "_Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self._ours.close()
        self._process.join()

    def seconds(self, calls: int) -> tuple[float, float]:
        """Seconds of one of so many calls, and the seconds of CPU that all of them used."""
        self._ours.send(calls)
        found: tuple[float, float] = self._ours.recv()
        return found


def _work(orders: "Connection[Any, Any]", side: Side) -> None:
    if side.keeps_memory:
        keep_freed_memory()
    step = side.make(*side.arguments)
    while True:
        try:
            calls = orders.recv()
        except EOFError:
            return
        used_s = time.process_time()
        second = _seconds(step, calls)
        orders.send((second, time.process_time() - used_s))


def _seconds(side: Callable[[], object], calls: int) -> float:
    _wait()
    began_s = time.perf_counter()
    for _ in range(calls):
        side()
    _wait()
    return (time.perf_counter() - began_s) / calls


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def environment() -> dict[str, Any]:
    """Where a figure was taken."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "processor": processor(),
        "cores": usable_cores(),
        "threads": torch.get_num_threads(),
        "gpu": gpu,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "commit": commit(),
    }


def write_result(path: Path | None, claim: str, content: Mapping[str, Any]) -> None:
    """Write what a script found as JSON, where a path is given."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        found = {"claim": claim, "environment": environment(), **content}
        write_whole(path, json.dumps(found, indent=1) + "\n")


def shown_by(interval: tuple[float, float]) -> str:
    """`better`, `worse` or `nothing`, by an interval of one less other where less is better."""
    low, high = interval
    return "nothing" if low <= 0 <= high else "better" if high < 0 else "worse"
