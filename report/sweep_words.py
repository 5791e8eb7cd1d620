"""What a sweep found, in sentences."""

from report.sweep_rows import (
    Objective,
    Row,
    Sweep,
    baseline_of,
    counts,
    distinct_trials,
    done,
    front,
    learned,
)


def headline(sweep: Sweep) -> str:
    """The best trial, its value, and how far it is from the baseline."""
    rows = done(sweep.rows)
    if not rows:
        return f"No trial has finished: {counts(sweep.rows)}."
    lines = (
        [_best_of_one(sweep, rows)] if len(sweep.objectives) == 1 else _best_of_each(sweep, rows)
    )
    return "\n".join([*lines, *_no_slower(sweep, rows)])


def _best_of_one(sweep: Sweep, rows: list[Row]) -> str:
    goal, best, baseline = sweep.objectives[0], rows[0], baseline_of(rows)
    value = f"{_value(best, 0, goal)} {goal.shown_unit} ({goal.name})"
    if baseline is not None and best.values == baseline.values:
        return f"The baseline, trial {baseline.number}, stays the best of {len(rows)}: {value}."
    said = f"Trial {best.number} is the best of {len(rows)} finished: {value}"
    return f"{said}, {_difference(best, baseline, 0, goal)}."


def _best_of_each(sweep: Sweep, rows: list[Row]) -> list[str]:
    kept, baseline = front(rows), baseline_of(rows)
    twins = len(rows) - len(distinct_trials(rows))
    lines = [
        f"{len(kept)} of {len(rows)} finished trials are beaten by none in all of "
        f"{', '.join(goal.name for goal in sweep.objectives)} (the Pareto front)."
        + (f" {twins} came to another one's network and values, and count with it." * bool(twins))
    ]
    for index, goal in enumerate(sweep.objectives):
        best = min(kept, key=lambda row: (_number(row, index), row.number))
        value = f"{_value(best, index, goal)} {goal.shown_unit}"
        said = _difference(best, baseline, index, goal)
        lines.append(f"Lowest {goal.name}: trial {best.number} with {value}, {said}.")
    return lines


def _no_slower(sweep: Sweep, rows: list[Row]) -> list[str]:
    row = next((row for row in rows if row.number == sweep.no_slower), None)
    if row is None:
        return []
    index = learned(sweep.objectives)
    goal = sweep.objectives[index]
    best = "Best" if len(sweep.objectives) == 1 else f"Lowest {goal.name}"
    said = "the baseline itself" if row.baseline else f"trial {row.number}"
    value = _value(row, index, goal)
    return [f"{best} that is no slower than the baseline: {said} with {value}."]


def warning(sweep: Sweep) -> str:
    """Why the best of many trials looks better than it is."""
    rows = done(sweep.rows)
    seeds = max((len(row.seeds) for row in rows), default=1)
    each = "one seed each" if seeds <= 1 else f"{seeds} seeds each"
    return (
        f"The best of {len(rows)} trials of {each} looks better than it is: part of its lead is "
        "luck. Settle it with seeds that took no part in this sweep:"
        if "confirm" in sweep.commands
        else f"The best of {len(rows)} trials of {each} looks better than it is: part of its lead "
        "is luck, which only fresh seeds can tell."
    )


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
