"""The trials of a sweep as a table for the terminal, as CSV, and in sentences."""

from collections.abc import Sequence
from dataclasses import asdict

from report.sweep.trials import (
    Goal,
    Summary,
    TrialRow,
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

_WIDTH, _MOST_ROWS, _LONGEST = 100, 12, 24


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
        best = min(unbeaten, key=lambda row: (row.value(index), not row.baseline, row.number))
        value = f"{goal.text(best.value(index))} {goal.unit}"
        difference = _difference(best, baseline, index, goal)
        lines.append(f"Lowest {goal.name}: trial {best.number} with {value}, {difference}.")
        if twins := [f"{row.number}" for row in rows if row is not best and _are_one(row, best)]:
            lines.append(
                f"Trial {best.number} trained the same network to the same result as trial "
                f"{', '.join(twins)}: nothing tells their settings apart."
            )
    return lines


def _are_one(row: TrialRow, other: TrialRow) -> bool:
    alike = (row.network, row.values) == (other.network, other.values)
    return alike and row.network is not None and row.params != other.params


def _difference(row: TrialRow, baseline: TrialRow | None, index: int, goal: Goal) -> str:
    if baseline is None:
        return "with no finished baseline to compare it with"
    if row.baseline:
        return "which is the baseline"
    less = baseline.value(index) - row.value(index)
    side = "below" if less > 0 else "above"
    return f"{goal.text(abs(less))} {side} the baseline's {goal.text(baseline.value(index))}"


def text_table(rows: Sequence[TrialRow], goals: Sequence[Goal]) -> str:
    """The table for a terminal, in 100 columns: at most 12 trials, the best first.

    The baseline is always among them; a failed trial has its reason in the place of settings.
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
        given = ", ".join(f"{short[key]} {row.setting(key)}" for key in row.params)
        settings.append(row.reason if row.state == "failed" and row.reason else given)
    pairs = zip(aligned(cells), settings, strict=True)
    head, *lines = (shorten(visible(f"{line}  {given}"), _WIDTH) for line, given in pairs)
    below = ["* the file's own values"] if baseline is not None else []
    if len(ordered) > len(shown):
        below.append(f"and {len(ordered) - len(shown)} more: trials.csv")
    return "\n".join([head, "-" * max(map(len, lines)), *lines, *below])


def csv_text(rows: Sequence[TrialRow], goals: Sequence[Goal]) -> str:
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
        # Numbers with all their digits, and YAML's words: true, null.
        for key, value in row.params.items():
            cells[key] = value if isinstance(value, float) else value_text(value)
        cells |= dict(zip(names, row.values or [], strict=False))
        for seed, values in row.seeds.items():
            cells |= {f"seed_{seed}.{name}": each for name, each in zip(names, values, strict=True)}
        lines.append({name: cells.get(name) for name in head})
    return csv_of(lines, head)
