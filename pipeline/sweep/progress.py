"""A line for each trial that ends, as it ends."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from optuna.trial import FrozenTrial, TrialState

from hpo.queue import LOST, REASON, STOPPED, Entry, Queue
from pipeline.sweep.plan import Sweep
from pipeline.sweep.results import layouts_of, objectives
from report.sweep.trials import parse_objectives, value_text
from utils.screen import announce
from utils.text import duration


@dataclass
class Progress:
    """Prints what is new of a sweep since it was last asked."""

    sweep: Sweep
    _began_s: float = field(default_factory=time.monotonic)
    _before: int = 0
    _shown: set[int] = field(default_factory=set)

    def pass_over(self, queue: Queue) -> None:
        """Take what has ended so far for known: an earlier command has printed it."""
        for entry in queue.entries():
            self._before += entry.finished
            self._shown |= {trial.number for _, trial in _ended(entry)}

    def show(self, queue: Queue) -> None:
        """Print a line for every attempt that was lost and for every trial that ended."""
        entries = queue.entries()
        ended = [
            (ended, trial, entry)
            for entry in entries
            for ended, trial in _ended(entry)
            if trial.number not in self._shown
        ]
        for _, trial, entry in sorted(ended, key=lambda end: end[0]):
            self._shown.add(trial.number)
            if trial is entry.last:
                done = sum(other.last.number in self._shown for other in entries)
                announce(f"[{done}/{len(entries)}] {self._line(entry)}")
            elif trial.user_attrs.get(LOST) != STOPPED:
                announce(f"trial {entry.number}: {trial.user_attrs.get(LOST)}; it runs again")

    def show_left(self, queue: Queue) -> None:
        """Print about how long the rest takes, once a trial was done since the start."""
        entries = queue.entries()
        rest = sum(not entry.finished for entry in entries)
        done = len(entries) - rest - self._before
        if done and rest:
            left_s = (time.monotonic() - self._began_s) / done * rest
            announce(f"about {duration(left_s)} left")

    def _line(self, entry: Entry) -> str:
        last = entry.last
        attributes = last.user_attrs
        parts = [f"trial {entry.number}"]
        if last.state == TrialState.COMPLETE:
            parts.append(worded(self.sweep, last.values))
            parts.append(layouts_of(last) or "")
        else:
            parts.append(f"{last.state.name.lower()}: {attributes.get(REASON, 'no reason given')}")
        parts.append(", ".join(f"{key}={value_text(value)}" for key, value in last.params.items()))
        if len(entry.attempts) > 1:
            parts.append(f"{len(entry.attempts)} attempts")
        return "  ".join(part for part in parts if part)


def _ended(entry: Entry) -> Iterator[tuple[datetime, FrozenTrial]]:
    """When and how its attempts ended; of a lost one only once its replacement is there."""
    for trial in entry.attempts:
        ended = trial.datetime_complete
        if ended is not None and (trial is not entry.last or entry.finished):
            yield ended, trial


def worded(sweep: Sweep, values: Sequence[float]) -> str:
    """Values of the objectives with their units, as the report shows them."""
    goals = parse_objectives(objectives(sweep))
    return "; ".join(
        f"{goal.text(value)} {goal.shown_unit}" for goal, value in zip(goals, values, strict=True)
    )
