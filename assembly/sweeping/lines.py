"""A line for each trial that ends, as it ends."""

import time
from dataclasses import dataclass, field
from typing import Any

from optuna.trial import TrialState

from assembly.sweeping.plan import Sweep
from assembly.sweeping.rows import layouts_of
from nas.sweep.queue import LOST, REASON, STOPPED, Entry, Queue

UNITS = {
    "retrained": "bits per byte retrained",
    "onehot": "bits per byte one-hot",
    "flops": "MFLOP per token",
    "parameters": "M parameters",
}
_SCALE = {"flops": 1e-6, "parameters": 1e-6}


@dataclass
class Progress:
    """Prints what is new of a sweep since it was last asked."""

    sweep: Sweep
    _began_s: float = field(default_factory=time.monotonic)
    _before: int | None = None
    _shown: set[int] = field(default_factory=set)

    def show(self, queue: Queue) -> None:
        """Print a line for every attempt that was lost and for every trial that ended."""
        entries = queue.entries()
        ended = [
            (trial.datetime_complete, trial, entry)
            for entry in entries
            for trial in entry.attempts
            if trial.datetime_complete is not None and trial.number not in self._shown
        ]
        if self._before is None:
            self._before = sum(entry.finished for entry in entries)
        for _, trial, entry in sorted(ended, key=lambda each: each[0]):
            self._shown.add(trial.number)
            if trial is entry.last:
                done = sum(each.last.number in self._shown for each in entries)
                print(f"[{done}/{len(entries)}] {self._line(entry)}", flush=True)
            elif trial.user_attrs.get(LOST) != STOPPED:
                print(f"trial {entry.number}: {trial.user_attrs.get(LOST)}; it runs again")

    def show_left(self, queue: Queue) -> None:
        """Print about how long the rest takes, once a trial was done since the start."""
        entries = queue.entries()
        rest = sum(not entry.finished for entry in entries)
        done = len(entries) - rest - (self._before or 0)
        if done and rest:
            left_s = (time.monotonic() - self._began_s) / done * rest
            print(f"about {duration(left_s)} left", flush=True)

    def _line(self, entry: Entry) -> str:
        last = entry.last
        attributes = last.user_attrs
        parts = [f"trial {entry.number}"]
        if last.state == TrialState.COMPLETE:
            parts.append(self.values(last.values))
            parts.append(layouts_of(last) or "")
        else:
            parts.append(f"{last.state.name.lower()}: {attributes.get(REASON, 'no reason given')}")
        parts.append(", ".join(f"{key}={show(value)}" for key, value in last.params.items()))
        if len(entry.attempts) > 1:
            parts.append(f"{len(entry.attempts)} attempts")
        return "  ".join(part for part in parts if part)

    def values(self, values: list[float]) -> str:
        """Objectives with their units."""
        return ", ".join(
            f"{value * _SCALE.get(name, 1.0):.4f} {UNITS[name]}"
            for name, value in zip(self.sweep.config.objectives, values, strict=True)
        )


def duration(seconds: float) -> str:
    """Hours and minutes, or minutes and seconds."""
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 60} min {whole % 60} s"


def show(value: Any) -> str:
    """A parameter's value, short."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
