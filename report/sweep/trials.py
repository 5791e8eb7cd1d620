"""The trials of a sweep as its files tell them, checked and ordered."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, FiniteFloat, ValidationError

from report.comparison import tight_layout
from report.run_files import read_json
from utils.pareto import different, first_learned, unbeaten
from utils.text import compact
from utils.validation import first_problem

State = Literal["done", "pruned", "failed", "running", "waiting", "stopped"]


class Objective(BaseModel):
    """Objective of a sweep, minimised."""

    model_config = ConfigDict(frozen=True)

    name: str
    unit: str

    def scaled(self, value: float) -> float:
        """The value in the unit that is shown."""
        return value / 1e6 if self.name == "flops" else value

    @property
    def shown_unit(self) -> str:
        """The unit in plain words; FLOPs come in millions."""
        return "MFLOP per token" if self.name == "flops" else self.unit

    def text(self, value: float) -> str:
        """The value alone, in the shown unit."""
        if self.name == "flops":
            return f"{self.scaled(value):.2f}" if value < 1e9 else f"{self.scaled(value):.0f}"
        return compact(value) if abs(value) >= 1000 else f"{value:.4f}"


class Row(BaseModel):
    """One logical trial: a value per objective where it is done."""

    model_config = ConfigDict(frozen=True)

    number: int
    state: State
    reason: str | None = None
    baseline: bool = False
    values: list[FiniteFloat] | None = None
    params: dict[str, Any] = {}
    seeds: dict[str, list[FiniteFloat] | None] = {}
    layout: str | None = None
    network: str | None = None
    parameters: int | FiniteFloat | None = None
    flops_per_token: FiniteFloat | None = None
    latency_ms: FiniteFloat | None = None
    attempts: int = 1
    went_on_from: list[str] = []
    elapsed_s: FiniteFloat | None = None
    host: str | None = None
    threads: int | None = None
    gpu: str | None = None
    torch: str | None = None
    commit: str | None = None

    @property
    def shown_layout(self) -> str:
        """The layout without blanks, `-` where there is none."""
        return tight_layout(self.layout or "-")

    @property
    def mflop(self) -> str:
        """Millions of FLOPs per token."""
        return "-" if self.flops_per_token is None else f"{self.flops_per_token / 1e6:.2f}"

    @property
    def latency(self) -> str:
        """The latency in ms."""
        return "-" if self.latency_ms is None else f"{self.latency_ms:.3g}"

    def setting(self, key: str) -> str:
        """The value of a setting, `-` where the trial does not have it."""
        return value_text(self.params[key]) if key in self.params else "-"


class Sweep(BaseModel):
    """The content of a run's `sweep.json`."""

    model_config = ConfigDict(frozen=True)

    name: str
    objectives: list[Objective]
    trials_wanted: int
    rows: list[Row]
    best: list[int] = []
    no_slower: int | None = None
    latency_note: str = ""
    latency_key: dict[str, Any] = {}
    sampler: str = ""
    pruner: str = ""
    storage: str = ""
    commands: dict[str, str] = {}


def read_sweep(path: Path) -> Sweep:
    """Read a `sweep.json`; ValueError names the first damaged place."""
    content = read_json(path)
    try:
        sweep = Sweep.model_validate(content)
    except ValidationError as error:
        raise ValueError(f"{path}: {first_problem(error)}; run sweep.py again") from error
    wrong = [
        row.number for row in done(sweep.rows) if len(row.values or []) != len(sweep.objectives)
    ]
    if wrong or not sweep.objectives:
        raise ValueError(
            f"{path}: rows: trial {wrong[0] if wrong else '?'} does not have one value for each of "
            f"{len(sweep.objectives)} objectives; run sweep.py again"
        )
    return sweep


def parse_rows(rows: Sequence[Mapping[str, Any]]) -> list[Row]:
    """The rows by number, checked."""
    return sorted((Row.model_validate(row) for row in rows), key=lambda row: row.number)


def parse_objectives(objectives: Sequence[Mapping[str, Any]]) -> list[Objective]:
    """The objectives, checked."""
    return [Objective.model_validate(objective) for objective in objectives]


def learned(objectives: Sequence[Objective]) -> int:
    """The place of the first objective that takes training; 0 where none does."""
    return first_learned([goal.name for goal in objectives]) or 0


def done(rows: Sequence[Row]) -> list[Row]:
    """The trials that have values, the best of the first objective first; a tie the baseline's."""
    finished = [row for row in rows if row.state == "done" and row.values is not None]
    return sorted(finished, key=lambda row: (row.values, not row.baseline, row.number))


def distinct_trials(rows: Sequence[Row]) -> list[Row]:
    """The finished trials without those that have another one's network and values."""
    finished = done(rows)
    networks = [row.network or row.number for row in finished]
    places = different(networks, [row.values or [] for row in finished])
    return [finished[place] for place in places]


def valueless(rows: Sequence[Row]) -> list[Row]:
    """All others: failed first, then pruned, stopped, running, waiting."""
    states = ("failed", "pruned", "stopped", "running", "waiting", "done")
    others = [row for row in rows if row.state != "done" or row.values is None]
    return sorted(others, key=lambda row: (states.index(row.state), row.number))


def baseline_of(rows: Sequence[Row]) -> Row | None:
    """The finished trial with the experiment file's own values, where there is one."""
    return next((row for row in done(rows) if row.baseline), None)


def front(rows: Sequence[Row]) -> list[Row]:
    """The finished trials that no other one equals or beats in all objectives and beats in one.

    Trials of one network with the same values stand there once.
    """
    finished = distinct_trials(rows)
    return [finished[place] for place in unbeaten([row.values or [] for row in finished])]


def counts(rows: Sequence[Row]) -> str:
    """Number of trials in each state, in words."""
    number = Counter(row.state for row in rows)
    states: tuple[State, ...] = ("done", "pruned", "failed", "stopped", "running", "waiting")
    parts = [f"{number[state]} {state}" for state in states if number[state]]
    return ", ".join(parts) or "no trial yet"


def keys_of(rows: Sequence[Row]) -> list[str]:
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


def ending(text: str, most: int) -> str:
    """`text` cut to its last `most` characters: the end of a dotted key says most."""
    return text if len(text) <= most else f"..{text[2 - most :]}"


def value_text(value: Any) -> str:
    """A parameter's value as a person writes it: 0.0312, cosine, true."""
    if isinstance(value, bool) or value is None:
        return str(value).lower() if value is not None else "null"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
