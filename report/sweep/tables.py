"""The trials of a sweep as a table for the terminal, as CSV, and in sentences."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from report.sweep.trials import (
    Objective,
    Row,
    Summary,
    baseline_of,
    counts,
    done,
    front,
    in_order,
    keys_of,
    short_keys,
    value_text,
)
from utils.files import csv_of
from utils.text import aligned, shorten, visible

_WIDTH, _MOST_ROWS, _MOST_REASONS, _LONGEST = 100, 12, 5, 24


def headline(sweep: Summary) -> list[str]:
    """The best trial, or the lowest of each objective, and how far it is from the baseline."""
    rows, goals = done(sweep.rows), sweep.objectives
    if not rows:
        return [f"No trial has finished: {counts(sweep.rows)}."]
    unbeaten, baseline = front(rows), baseline_of(rows)
    lines = []
    if len(goals) > 1:
        lines.append(
            f"{len(unbeaten)} of {len(rows)} finished trials are beaten by none in all of "
            f"{', '.join(goal.name for goal in goals)} (the Pareto front)."
        )
    for index, goal in enumerate(goals):
        best = min(unbeaten, key=lambda row: (_number(row, index), not row.baseline, row.number))
        value = f"{goal.text(_number(best, index))} {goal.unit}"
        difference = _difference(best, baseline, index, goal)
        lines.append(f"Lowest {goal.name}: trial {best.number} with {value}, {difference}.")
    return lines


def warning(sweep: Summary) -> str:
    """Warning that the best of many trials looks better than it is."""
    rows = done(sweep.rows)
    seeds = max((len(row.seeds) for row in rows), default=1)
    trials = f"{len(rows)} trials of {'one seed' if seeds <= 1 else f'{seeds} seeds'} each"
    return (
        f"The best of {trials} looks better than it is: part of its lead is luck. Settle it with "
        "seeds that took no part in this sweep"
    )


def _number(row: Row, index: int) -> float:
    assert row.values is not None
    return row.values[index]


def _difference(row: Row, baseline: Row | None, index: int, goal: Objective) -> str:
    if baseline is None:
        return "with no finished baseline to compare it with"
    if row.baseline:
        return "which is the baseline"
    less = _number(baseline, index) - _number(row, index)
    side = "below" if less > 0 else "above"
    return f"{goal.text(abs(less))} {side} the baseline's {goal.text(_number(baseline, index))}"


def text_table(rows: Sequence[Row], goals: Sequence[Objective]) -> str:
    """The table for a terminal, in 100 columns: at most 12 trials, the best first.

    The baseline is always among them. Below stand the reasons of failed trials; the CSV has all.
    """
    if not rows:
        return "no trial yet"
    ordered, short = in_order(rows), short_keys(keys_of(rows))
    shown = ordered[:_MOST_ROWS]
    baseline = next((row for row in ordered if row.baseline), None)
    if baseline is not None and baseline not in shown:
        shown[-1] = baseline
    cells = [["trial", "state", *(goal.name for goal in goals), "layout"]]
    settings = ["settings"]
    for row in shown:
        star, layout = "*" if row.baseline else "", shorten(row.shown_layout, _LONGEST)
        cells.append([f"{star}{row.number}", row.state, *row.shown_values(goals), layout])
        settings.append(", ".join(f"{short[key]} {row.setting(key)}" for key in row.params))
    pairs = zip(aligned(cells), settings, strict=True)
    head, *lines = (_line(f"{line}  {given}") for line, given in pairs)
    failed = [row for row in ordered if row.state == "failed"]
    below = [
        _line(f"trial {row.number} failed: {row.reason or 'no reason known'}")
        for row in failed[:_MOST_REASONS]
    ]
    if len(failed) > _MOST_REASONS:
        below.append(f"and {len(failed) - _MOST_REASONS} more failed: trials.csv")
    if len(ordered) > len(shown):
        below.append(f"and {len(ordered) - len(shown)} more: trials.csv")
    legend = ["* the file's own values"] if baseline is not None else []
    return "\n".join([head, "-" * max(map(len, lines)), *lines, *legend, *below])


def _line(text: str) -> str:
    """At most so many columns, with nothing that a terminal would obey."""
    return shorten(visible(text), _WIDTH)


def csv_text(rows: Sequence[Row], goals: Sequence[Objective]) -> str:
    """All trials by number: `number, state, reason`, one column per objective and per setting.

    Then `seed_S.OBJECTIVE` for every seed, `layout`, what the trial cost, and where it ran. Empty
    is unknown.
    """
    names, keys = [goal.name for goal in goals], keys_of(rows)
    seeds = sorted({seed for row in rows for seed in row.seeds}, key=int)
    of_seeds = [f"seed_{seed}.{name}" for seed in seeds for name in names]
    head = ["number", "state", "reason", "baseline", *names, *keys, *of_seeds, "layout"]
    head += ["parameters", "flops_per_token", "attempts", "elapsed_s", "host"]
    lines = []
    for row in rows:
        cells = asdict(row) | {"baseline": value_text(row.baseline)}
        cells |= {key: _exact(value) for key, value in row.params.items()}
        cells |= dict(zip(names, row.values or [], strict=False))
        for seed, values in row.seeds.items():
            cells |= {f"seed_{seed}.{name}": each for name, each in zip(names, values, strict=True)}
        lines.append({name: cells.get(name) for name in head})
    return csv_of(lines, head)


def _exact(value: Any) -> Any:
    """A setting with all its digits, and with YAML's words: true, null."""
    return value_text(value) if isinstance(value, bool) or value is None else value
