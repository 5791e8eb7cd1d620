"""One self-contained HTML page about a sweep, also while it runs: the answer first."""

import json
from collections.abc import Sequence
from pathlib import Path

from report import html
from report.stack import Palette, palette_of, stack
from report.sweep.tables import headline, warning
from report.sweep.trials import (
    Row,
    Sweep,
    baseline_of,
    counts,
    done,
    front,
    keys_of,
    read_sweep,
    short_keys,
    valueless,
)
from utils.text import compact

_MOST_ROWS, _MOST_COLUMNS, _MOST_STACKS = 50, 9, 4
_CAPTIONS = {  # beginning of a figure's name: what it shows
    "history": "Every trial in order, and the best so far.",
    "pareto": "What the finished trials reach; on the line no trial is beaten in all objectives.",
    "importances": (
        "How much of the differences each setting explains by itself, among the trials that have "
        "it, equal settings once; a bar that ends below its mark is no more than chance."
    ),
    "slice": "The value over each setting; paler marks are earlier trials.",
}


def write_sweep_report(run: Path) -> Path:
    """Write `sweep.html` into the sweep's folder, from `sweep.json` and `figures/*.png`.

    Raises:
        ValueError: `sweep.json` is missing or broken.
    """
    sweep = read_sweep(run / "sweep.json")
    palette = _palette(sweep)
    sections = [
        _result(sweep, palette),
        _best(sweep),
        _figures(run / "figures"),
        _finished(sweep),
        _others(sweep),
        _how(sweep),
    ]
    return html.write_page(run / "sweep.html", sweep.name, sections, palette.block_px)


def _result(sweep: Sweep, palette: Palette) -> html.Section:
    """The first screen: the layouts that were found beside the baseline's, and what is said."""
    facts = {
        "trials": f"{counts(sweep.rows)} (of {sweep.trials_wanted})",
        "minimised": "; ".join(f"{goal.name}, {goal.shown_unit}" for goal in sweep.objectives),
        "sampler": sweep.sampler,
        "pruner": sweep.pruner,
        "storage": sweep.storage,
    }
    finished = bool(done(sweep.rows))
    found = [row for row in _best_rows(sweep) if row.layout][:_MOST_STACKS]
    body = html.render(
        "sweep.html.j2",
        drawn=[
            (stack((row.layout or "").split(), palette), _name(row), _reached(sweep, row))
            for row in found
        ],
        headline=headline(sweep).splitlines(),
        warning=warning(sweep) if finished else "",
        confirm=sweep.commands.get("confirm") if finished else None,
        facts={name: value for name, value in facts.items() if value},
    )
    return html.Section("answer", "Result", body)


def _reached(sweep: Sweep, row: Row) -> list[str]:
    """Values of a trial, one for each objective."""
    return [
        f"{goal.text(value)} {goal.shown_unit}"
        for goal, value in zip(sweep.objectives, row.values or [], strict=True)
    ]


def _palette(sweep: Sweep) -> Palette:
    layouts = [(row.layout or "").split() for row in sweep.rows]
    return palette_of(
        (word for words in layouts for word in words), max(map(len, layouts), default=1)
    )


def _best_rows(sweep: Sweep) -> list[Row]:
    """The best trials, or all that no other one beats, behind the baseline."""
    known = {row.number: row for row in done(sweep.rows)}
    best = [known[number] for number in sweep.best if number in known] or front(sweep.rows)
    baseline = baseline_of(sweep.rows)
    others = [row for row in best if baseline is None or row.number != baseline.number]
    return [*([baseline] if baseline and best else []), *others]


def _best(sweep: Sweep) -> html.Section | None:
    """The settings of the best trial, or of all that no other one beats, beside the baseline's."""
    best = _best_rows(sweep)
    if not best:
        return None
    shown = best[:_MOST_COLUMNS]
    head = [("setting", ""), *((_name(row), "") for row in shown)]
    rows = [(False, [key, *(row.setting(key) for row in shown)]) for key in keys_of(shown)]
    rows.append((False, ["layout found", *(row.shown_layout for row in shown)]))
    more = len(best) - len(shown)
    title = "Settings of the best trial" if len(sweep.objectives) == 1 else "The Pareto front"
    body = html.render(
        "exhibit.html.j2",
        table=html.Table(head, rows, left=1, label=title),
        notes=[f"{more} more in the table below"] if more > 0 else [],
        pictures=[],
    )
    return html.Section("best", title, body)


def _name(row: Row) -> str:
    return f"trial {row.number}" + (" (baseline)" if row.baseline else "")


def _figures(folder: Path) -> html.Section | None:
    pictures = [
        html.Picture(path.read_bytes(), caption, f"Chart, {beginning}: {caption}")
        for beginning, caption in _CAPTIONS.items()
        for path in sorted([*folder.glob(f"{beginning}.png"), *folder.glob(f"{beginning}-*.png")])
    ]
    body = html.render("exhibit.html.j2", pictures=pictures)
    return html.Section("figures", "Figures", body) if pictures else None


def _finished(sweep: Sweep) -> html.Section | None:
    rows = done(sweep.rows)
    if not rows:
        return None
    best = set(sweep.best) or {row.number for row in front(sweep.rows)}
    more = len(rows) - _MOST_ROWS
    body = html.render(
        "sweep_trials.html.j2",
        table=_table(sweep, rows[:_MOST_ROWS], best),
        more=f"and {more} more: trials.csv" if more > 0 else "",
        latency=sweep.latency_note,
        latency_key=json.dumps(sweep.latency_key, indent=1) if sweep.latency_key else "",
    )
    return html.Section("finished", "Finished trials", body)


def _table(sweep: Sweep, rows: Sequence[Row], best: set[int]) -> html.Table:
    keys = keys_of(sweep.rows)
    short = short_keys(keys)
    head = [("trial", ""), ("layout", "")]
    head += [(goal.name, goal.shown_unit) for goal in sweep.objectives]
    head += [(short[key], key.removesuffix(short[key]).rstrip(".")) for key in keys]
    head += [("parameters", ""), ("MFLOP", "per token"), ("latency", "ms"), ("attempts", "")]
    head += [("time", "s"), ("host", "")]
    body = []
    for row in rows:
        cells = [_name(row), row.shown_layout]
        goals = zip(sweep.objectives, row.values or [], strict=True)
        cells += [goal.text(value) for goal, value in goals]
        cells += [row.setting(key) for key in keys]
        cells += [
            "-" if row.parameters is None else compact(row.parameters),
            row.mflop,
            row.latency,
            str(row.attempts),
            "-" if row.elapsed_s is None else f"{row.elapsed_s:.0f}",
            row.host or "-",
        ]
        body.append((row.number in best, cells))
    return html.Table(head, body, left=2, label="finished trials")


def _others(sweep: Sweep) -> html.Section | None:
    """Trials without a value: the failed ones first, with their reasons."""
    rows = [row for row in valueless(sweep.rows) if row.state != "waiting"]
    if not rows:
        return None
    keys = short_keys(keys_of(sweep.rows))
    cells = []
    for row in rows:
        settings = ", ".join(f"{keys[key]} {row.setting(key)}" for key in row.params)
        said = [_name(row), row.state, row.reason or "-", settings, row.host or "-"]
        cells.append((False, [*said, str(row.attempts)]))
    head = [(name, "") for name in ("trial", "state", "reason", "settings", "host", "attempts")]
    table = html.Table(head, cells, left=5, label="trials without a value")
    body = html.render("exhibit.html.j2", table=table, pictures=[])
    return html.Section("others", "Trials without a value", body)


def _how(sweep: Sweep) -> html.Section | None:
    introductions = {
        "sweep": "Go on, or run what is left:",
        "rerun": "Search with the best settings, at full length:",
        "dashboard": "Look at it in optuna-dashboard (pip install optuna-dashboard):",
    }
    steps = {
        text: sweep.commands[name] for name, text in introductions.items() if name in sweep.commands
    }
    body = html.render("sweep_commands.html.j2", steps=steps)
    return html.Section("how", "How to go on", body) if steps else None
