"""The trials of a sweep: rows of its table, in order, and the words for their values."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from report.run_files import tight_layout
from utils.pareto import different, unbeaten
from utils.text import compact

STATES = ("failed", "pruned", "running", "waiting", "done")


@dataclass(frozen=True)
class Goal:
    """Goal of a sweep, minimised."""

    name: str
    unit: str

    def text(self, value: float) -> str:
        """The value alone: four decimals, or three digits of a large one."""
        return compact(value) if abs(value) >= 1000 else f"{value:.4f}"


@dataclass(frozen=True)
class TrialRow:
    """One trial of the sweep: where it is done, a value per objective.

    `network` is equal where layouts are one; sizes are means over the seeds.
    """

    number: int
    state: str
    reason: str | None = None
    baseline: bool = False
    values: list[float] | None = None
    params: dict[str, Any] = field(default_factory=dict)
    seeds: dict[str, list[float]] = field(default_factory=dict)
    layout: str | None = None
    network: str | None = None
    parameters: float | None = None
    flops_per_token: float | None = None
    attempts: int = 1
    elapsed_s: float | None = None
    host: str | None = None

    @property
    def name(self) -> str:
        """Its number, and whether it is the baseline."""
        return f"trial {self.number}" + (" (baseline)" if self.baseline else "")

    def value(self, index: int) -> float:
        """The value in an objective of a finished trial."""
        assert self.values is not None
        return self.values[index]

    @property
    def shown_layout(self) -> str:
        """The layout without blanks, `-` where there is none."""
        return tight_layout(self.layout or "-")

    def shown_values(self, goals: Sequence[Goal]) -> list[str]:
        """The value in each objective, `-` where there is none."""
        if self.values is None:
            return ["-"] * len(goals)
        return [goal.text(value) for goal, value in zip(goals, self.values, strict=True)]

    def setting(self, key: str) -> str:
        """The value of a setting, `-` where the trial does not have it."""
        return value_text(self.params[key]) if key in self.params else "-"


@dataclass(frozen=True)
class Summary:
    """What a sweep's page says: rows by number, facts by name, the command that confirms."""

    name: str
    objectives: list[Goal]
    rows: list[TrialRow]
    facts: dict[str, str]
    confirm: str | None


def done(rows: Sequence[TrialRow]) -> list[TrialRow]:
    """The trials that have values, the best of the first objective first; a tie the baseline's."""
    finished = [row for row in rows if row.values is not None]
    return sorted(finished, key=lambda row: (row.values, not row.baseline, row.number))


def front(rows: Sequence[TrialRow]) -> list[TrialRow]:
    """The finished trials that no other one dominates; of one objective the best one.

    Trials of one network with the same values stand there once.
    """
    finished = done(rows)
    networks = [row.network or row.number for row in finished]
    distinct = [finished[at] for at in different(networks, [row.values or [] for row in finished])]
    if distinct and len(distinct[0].values or []) == 1:
        return distinct[:1]
    return [distinct[place] for place in unbeaten([row.values or [] for row in distinct])]


def in_order(rows: Sequence[TrialRow]) -> list[TrialRow]:
    """The finished trials, the best first, then failed, pruned, running, waiting ones."""
    others = [row for row in rows if row.values is None]
    return done(rows) + sorted(others, key=lambda row: (STATES.index(row.state), row.number))


def baseline_of(rows: Sequence[TrialRow]) -> TrialRow | None:
    """The finished trial with the experiment file's own values, where there is one."""
    return next((row for row in done(rows) if row.baseline), None)


def counts(rows: Sequence[TrialRow]) -> str:
    """Number of trials in each state, in words."""
    number = Counter(row.state for row in rows)
    parts = [f"{number[state]} {state}" for state in ("done", *STATES[:-1]) if number[state]]
    return ", ".join(parts) or "no trial yet"


def keys_of(rows: Sequence[TrialRow]) -> list[str]:
    """The dotted keys that any trial sets, in order."""
    return sorted({key for row in rows for key in row.params})


def short_keys(keys: Sequence[str], least: int = 1) -> dict[str, str]:
    """The shortest end of each dotted key that no other one has, of `least` parts or more."""
    short = {}
    for key in keys:
        parts = key.split(".")
        others = [other.split(".") for other in keys if other != key]
        length = least
        while length < len(parts) and parts[-length:] in [other[-length:] for other in others]:
            length += 1
        short[key] = ".".join(parts[-length:])
    return short


def value_text(value: Any) -> str:
    """A parameter's value as a person writes it: 0.0312, cosine, true."""
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)
