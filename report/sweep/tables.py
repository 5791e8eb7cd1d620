"""The trials of a sweep as a table for the terminal, as CSV, and in sentences."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from report.sweep.trials import (
    Objective,
    Row,
    Sweep,
    baseline_of,
    counts,
    distinct_trials,
    done,
    front,
    keys_of,
    short_keys,
    value_text,
    valueless,
)
from utils.files import csv_of
from utils.pareto import first_learned
from utils.text import aligned, shorten, visible

_WIDTH, _MOST_ROWS, _MOST_REASONS, _LONGEST = 100, 12, 5, 18
_TAIL = (
    "layout", "network", "parameters", "flops_per_token", "latency_ms", "attempts",
    "went_on_from", "elapsed_s", "host", "threads", "gpu", "torch", "commit",
)  # fmt: skip


def headline(sweep: Sweep) -> list[str]:
    """The best trial, its value, and how far it is from the baseline."""
    rows = done(sweep.rows)
    if not rows:
        return [f"No trial has finished: {counts(sweep.rows)}."]
    single = len(sweep.objectives) == 1
    lines = _best_of_one(sweep, rows) if single else _best_of_each(sweep, rows)
    row = next((row for row in rows if row.number == sweep.no_slower), None)
    if row is not None:
        index = first_learned([goal.name for goal in sweep.objectives]) or 0
        best = "Best" if single else f"Lowest {sweep.objectives[index].name}"
        trial = "the baseline itself" if row.baseline else f"trial {row.number}"
        value = _value(row, index, sweep.objectives[index])
        lines.append(f"{best} that is no slower than the baseline: {trial} with {value}.")
    return lines


def _best_of_one(sweep: Sweep, rows: list[Row]) -> list[str]:
    goal, best, baseline = sweep.objectives[0], rows[0], baseline_of(rows)
    value = f"{_value(best, 0, goal)} {goal.shown_unit} ({goal.name})"
    if baseline is not None and best.values == baseline.values:
        return [f"The baseline, trial {baseline.number}, stays the best of {len(rows)}: {value}."]
    difference = _difference(best, baseline, 0, goal)
    lines = [f"Trial {best.number} is the best of {len(rows)} finished: {value}, {difference}."]
    twins = sum(row.values == best.values and row.network == best.network for row in rows) - 1
    if twins and best.network:
        lines.append(
            f"{twins} more came to its network and value: their settings are as good as its own."
        )
    return lines


def _best_of_each(sweep: Sweep, rows: list[Row]) -> list[str]:
    unbeaten, baseline = front(rows), baseline_of(rows)
    twins = len(rows) - len(distinct_trials(rows))
    lines = [
        f"{len(unbeaten)} of {len(rows)} finished trials are beaten by none in all of "
        f"{', '.join(goal.name for goal in sweep.objectives)} (the Pareto front)."
        + (f" {twins} came to another one's network and values, and count with it." * bool(twins))
    ]
    for index, goal in enumerate(sweep.objectives):
        best = min(unbeaten, key=lambda row: (_number(row, index), row.number))
        value = f"{_value(best, index, goal)} {goal.shown_unit}"
        difference = _difference(best, baseline, index, goal)
        lines.append(f"Lowest {goal.name}: trial {best.number} with {value}, {difference}.")
    return lines


def warning(sweep: Sweep) -> str:
    """Warning that the best of many trials looks better than it is."""
    rows = done(sweep.rows)
    seeds = max((len(row.seeds) for row in rows), default=1)
    trials = f"{len(rows)} trials of {'one seed' if seeds <= 1 else f'{seeds} seeds'} each"
    remedy = (
        ". Settle it with seeds that took no part in this sweep:"
        if "confirm" in sweep.commands
        else ", which only fresh seeds can tell."
    )
    return f"The best of {trials} looks better than it is: part of its lead is luck{remedy}"


def _number(row: Row, index: int) -> float:
    assert row.values is not None
    return row.values[index]


def _value(row: Row, index: int, goal: Objective) -> str:
    return goal.text(_number(row, index))


def _difference(row: Row, baseline: Row | None, index: int, goal: Objective) -> str:
    if baseline is None:
        return "with no finished baseline to compare it with"
    less = _number(baseline, index) - _number(row, index)
    if less == 0:
        return "which is what the baseline has"
    side = "below" if less > 0 else "above"
    return f"{goal.text(abs(less))} {side} the baseline's {_value(baseline, index, goal)}"


def text_table(rows: Sequence[Row], goals: Sequence[Objective]) -> str:
    """The table for a terminal, in 100 columns: at most 12 trials, the best first.

    The baseline is always among them. Below stand the reasons of failed trials, and what found no
    room; the CSV has all.
    """
    if not rows:
        return "no trial yet"
    ordered = [*done(rows), *valueless(rows)]
    shown = ordered[:_MOST_ROWS]
    baseline = next((row for row in ordered if row.baseline), None)
    if baseline is not None and baseline not in shown:
        shown[-1] = baseline
    columns = _columns(shown, goals)
    settings = [
        [_line(short, 30), "", *(_line(row.setting(key), _LONGEST) for row in shown)]
        for key, short in short_keys(keys_of(rows)).items()
    ]
    left_out = list[str]()
    lines = aligned(list(zip(*columns, *settings, strict=True)))
    while settings and max(map(len, lines)) > _WIDTH:
        left_out.insert(0, settings.pop()[0])
        lines = aligned(list(zip(*columns, *settings, strict=True)))
    below = _reasons(ordered)
    if len(ordered) > len(shown):
        below.append(f"and {len(ordered) - len(shown)} more: trials.csv")
    if left_out:
        below.append(shorten(f"no room for {', '.join(left_out)}", _WIDTH - 12) + ": trials.csv")
    return "\n".join([*lines[:2], "-" * max(map(len, lines)), *lines[2:], *below])


def _columns(shown: Sequence[Row], goals: Sequence[Objective]) -> list[list[str]]:
    """Title, unit and cells of every column but the settings'."""
    legend = "* baseline" if any(row.baseline for row in shown) else ""
    columns = [["trial", legend, *(f"{'*' if row.baseline else ''}{row.number}" for row in shown)]]
    columns.append(["state", "", *(row.state for row in shown)])
    for index, goal in enumerate(goals):
        cells = [goal.text(row.values[index]) if row.values else "-" for row in shown]
        unit = goal.shown_unit.split(" of ")[0]
        unit = "" if unit == goal.name else _line(unit, _LONGEST)
        columns.append([_line(goal.name, _LONGEST), unit, *cells])
    columns.append(["layout", "", *(_line(row.shown_layout, _LONGEST) for row in shown)])
    if "flops" not in {goal.name for goal in goals}:
        columns.append(["MFLOP", "per token", *(row.mflop for row in shown)])
    columns.append(["latency", "ms", *(row.latency for row in shown)])
    return [one for one in columns if any(cell != "-" for cell in one[2:])]


def _reasons(ordered: Sequence[Row]) -> list[str]:
    failed = [row for row in ordered if row.state == "failed"]
    lines = [
        _line(f"trial {row.number} failed: {row.reason or 'no reason known'}", _WIDTH)
        for row in failed[:_MOST_REASONS]
    ]
    more = len(failed) - _MOST_REASONS
    return [*lines, f"and {more} more failed: trials.csv"] if more > 0 else lines


def _line(text: str, most: int) -> str:
    """On one line, with nothing that a terminal would obey."""
    return shorten(visible(" ".join(text.split())), most)


def csv_text(rows: Sequence[Row], goals: Sequence[Objective]) -> str:
    """All trials by number: `number, state, reason`, one column per objective and per setting.

    Then `seed_S.OBJECTIVE` for every seed, `layout`, `network` (equal where layouts are one), what
    the trial cost, and where and with which version of the program it ran. Empty is unknown.
    """
    names, keys = [goal.name for goal in goals], keys_of(rows)
    seeds = sorted({seed for row in rows for seed in row.seeds}, key=int)
    of_seeds = [f"seed_{seed}.{name}" for seed in seeds for name in names]
    head = ["number", "state", "reason", "baseline", *names, *keys, *of_seeds, *_TAIL]
    lines = []
    for row in rows:
        cells = asdict(row) | {"went_on_from": "; ".join(row.went_on_from)}
        cells |= {"baseline": value_text(row.baseline)}
        cells |= {key: _exact(value) for key, value in row.params.items()}
        cells |= dict(zip(names, row.values or [], strict=False))
        for seed, values in row.seeds.items():
            cells |= {f"seed_{seed}.{name}": each for name, each in zip(names, values, strict=True)}
        lines.append({name: cells.get(name) for name in head})
    return csv_of(lines, head)


def _exact(value: Any) -> Any:
    """A setting with all its digits, and with YAML's words: true, null."""
    return value_text(value) if isinstance(value, bool) or value is None else value
