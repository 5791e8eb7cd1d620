"""Heartbeats: which worker runs a trial, and when it counts as dead.

A worker writes a growing count into its trial. Others compare counts by their own clocks, so clocks
need not agree; on the same machine a process that is gone is seen at once.
"""

import os
import socket
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

_PROC = Path("/proc")


@dataclass(frozen=True)
class Lease:
    """What a worker writes into its trial.

    `host` is for people; `machine` tells machines, and containers on one machine, apart. `began` is
    when the process began, in the kernel's ticks, empty where it is not known. `count` grows with
    every sign.
    """

    host: str
    machine: str
    pid: int
    began: str
    count: int = 0

    def next(self) -> "Lease":
        """The next sign."""
        return replace(self, count=self.count + 1)

    def as_json(self) -> dict[str, str | int]:
        """What is stored."""
        return asdict(self)


def own_lease() -> Lease:
    """The lease of this process."""
    pid = os.getpid()
    return Lease(socket.gethostname(), machine(), pid, _began(pid))


def machine() -> str:
    """Where a process number means the same process: host, boot and process namespace."""
    boot = _PROC / "sys/kernel/random/boot_id"
    try:
        parts = (boot.read_text().strip(), os.readlink(_PROC / "self/ns/pid"))
    except OSError:
        parts = ("", "")
    return " ".join((socket.gethostname(), *parts))


def now_s() -> float:
    """Seconds that pass also while the machine sleeps, where the system can tell."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class HeartbeatMonitor:
    """Finds workers that are gone: `lease_s` without a sign, by this process's own clock."""

    def __init__(self, lease_s: float, clock: Callable[[], float] = now_s) -> None:
        self.lease_s = lease_s
        self._clock = clock
        self._machine = machine()
        # Per trial its last sign and when this process first saw it.
        self._seen: dict[int, tuple[Any, float]] = {}
        self._looked = clock()

    def begin(self) -> None:
        """Begin a look at all running trials, with the signs at hand.

        After a time in which this process could not look (it slept, the storage was away) nobody is
        held to have been silent: they could not be heard.
        """
        now = self._clock()
        if now - self._looked > self.lease_s / 2:
            self._seen = {number: (sign, now) for number, (sign, _) in self._seen.items()}
        self._looked = now

    def dead_reason(self, number: int, sign: Any) -> str | None:
        """What became of the worker of a running trial; None while it may be alive."""
        now = self._clock()
        last, since = self._seen.get(number, (None, now))
        if number not in self._seen or last != sign:
            self._seen[number] = (sign, now)
            since = now
        if isinstance(sign, dict) and sign.get("machine") == self._machine and _ended(sign):
            return f"its worker (process {sign['pid']} on {sign['host']}) died"
        if now - since >= self.lease_s:
            where = f" on {sign['host']}" if isinstance(sign, dict) else ""
            return f"its worker{where} gave no sign for {self.lease_s:g} s"
        return None


def _ended(sign: dict[str, Any]) -> bool:
    pid, began = int(sign["pid"]), str(sign["began"])
    return bool(began) and _began(pid) != began


def _began(pid: int) -> str:
    """Start of a process in the kernel's ticks; empty where there is none, or a zombie."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]
