"""A line for each trial that ends, as it ends."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from optuna.trial import TrialState

from hpo.study import REASON, STOPPED, Entry
from pipeline.sweep.plan import Sweep
from pipeline.sweep.results import LOST, layouts_of, objectives
from report.sweep.trials import parse_objectives, value_text
from utils.screen import announce
from utils.text import duration

_LEFT_S = 120.0


@dataclass
class Progress:
    """Prints news of a sweep; what had ended at its making is known from an earlier command."""

    sweep: Sweep
    before: Sequence[Entry]
    _began_s: float = field(default_factory=time.monotonic)
    _left_s: float = field(default_factory=time.monotonic)
    _shown: set[int] = field(init=False)

    def __post_init__(self) -> None:
        self._shown = {trial.number for entry in self.before for trial in entry.attempts[:-1]}
        self._shown |= {entry.last.number for entry in self.before if entry.finished}

    def show(self, entries: Sequence[Entry], *, last: bool = False) -> bool:
        """Print a line for every attempt that was lost and every trial that ended; if there are.

        A failure without a reason may be a lost attempt that is to be enqueued again, unless this
        is the `last` time.
        """
        ended = [entry for entry in entries if _has_ended(entry) or (last and entry.finished)]
        for entry in entries:
            for trial in entry.attempts[:-1]:
                if trial.number not in self._shown and STOPPED not in trial.user_attrs:
                    announce(f"trial {entry.number}: {LOST}; it runs again")
                self._shown.add(trial.number)
        new = [entry for entry in ended if entry.last.number not in self._shown]
        for entry in new:
            self._shown.add(entry.last.number)
            done = sum(other.last.number in self._shown for other in ended)
            announce(f"[{done}/{len(entries)}] {self._line(entry)}")
        self._show_left(len(entries) - len(ended), len(ended))
        return bool(new)

    def _show_left(self, rest: int, ended: int) -> None:
        """Print now and then about how long the rest takes."""
        done = ended - sum(entry.finished for entry in self.before)
        if done <= 0 or not rest or time.monotonic() - self._left_s < _LEFT_S:
            return
        self._left_s = time.monotonic()
        announce(f"about {duration((self._left_s - self._began_s) / done * rest)} left")

    def _line(self, entry: Entry) -> str:
        last = entry.last
        attributes = last.user_attrs
        parts = [f"trial {entry.number}"]
        if last.state == TrialState.COMPLETE:
            parts.append(worded(self.sweep, last.values))
            parts.append(layouts_of(last) or "")
        else:
            parts.append(f"{last.state.name.lower()}: {attributes.get(REASON, LOST)}")
        parts.append(", ".join(f"{key}={value_text(value)}" for key, value in last.params.items()))
        if len(entry.attempts) > 1:
            parts.append(f"{len(entry.attempts)} attempts")
        return "  ".join(part for part in parts if part)


def _has_ended(entry: Entry) -> bool:
    return entry.finished and (
        entry.last.state != TrialState.FAIL or REASON in entry.last.user_attrs
    )


def worded(sweep: Sweep, values: Sequence[float]) -> str:
    """Values of the objectives with their units, as the report shows them."""
    goals = parse_objectives(objectives(sweep))
    return "; ".join(
        f"{goal.text(value)} {goal.shown_unit}" for goal, value in zip(goals, values, strict=True)
    )
