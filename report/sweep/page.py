"""One self-contained HTML page about a sweep, also while it runs: the answer first."""

import json
from pathlib import Path

from report import html
from report.layouts import Palette, palette_of, stack
from report.sweep.tables import headline, warning
from report.sweep.trials import (
    Row,
    Sweep,
    baseline_of,
    counts,
    done,
    keys_of,
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
_HOW = {  # name of a command: what it is for
    "sweep": "Go on, or run what is left:",
    "rerun": "Search with the best settings, at full length:",
    "dashboard": "Look at it in optuna-dashboard (pip install optuna-dashboard):",
}


def write_sweep_report(run: Path, sweep: Sweep) -> Path:
    """Write `sweep.html` into the sweep's folder, with the figures that lie there."""
    palette = palette_of((row.layout or "").split() for row in sweep.rows)
    # The best trials, or all that no other one beats, behind the baseline.
    baseline = baseline_of(sweep.rows)
    best = [row for row in done(sweep.rows) if row.number in sweep.best and row != baseline]
    best = [baseline, *best] if baseline and sweep.best else best
    sections = [
        _result(sweep, best, palette),
        _best(sweep, best) if best else None,
        _figures(run / "figures"),
        _finished(sweep) if done(sweep.rows) else None,
        _others(sweep),
        _how(sweep),
    ]
    return html.write_page(run / "sweep.html", sweep.name, sections, palette.block_px)


def _result(sweep: Sweep, best: list[Row], palette: Palette) -> html.Section:
    """The first screen: the layouts that were found beside the baseline's, and what is said."""
    finished = bool(done(sweep.rows))
    found = [row for row in best if row.layout][:_MOST_STACKS]
    body = html.render(
        "sweep.html.j2",
        drawn=[
            (stack((row.layout or "").split(), palette), row.name, _reached(sweep, row))
            for row in found
        ],
        headline=headline(sweep),
        warning=warning(sweep) if finished else "",
        confirm=sweep.commands.get("confirm") if finished else None,
        facts={
            "trials": f"{counts(sweep.rows)} (of {len(sweep.rows)})",
            "minimised": "; ".join(f"{goal.name}, {goal.shown_unit}" for goal in sweep.objectives),
            "sampler": sweep.sampler,
            "pruner": sweep.pruner,
            "storage": sweep.storage,
        },
    )
    return html.Section("answer", "Result", body)


def _reached(sweep: Sweep, row: Row) -> list[str]:
    """Values of a trial, one for each objective."""
    goals = zip(sweep.objectives, row.values or [], strict=True)
    return [f"{goal.text(value)} {goal.shown_unit}" for goal, value in goals]


def _best(sweep: Sweep, best: list[Row]) -> html.Section:
    """The settings of the best trial, or of all that no other one beats, beside the baseline's."""
    shown = best[:_MOST_COLUMNS]
    head = [("setting", ""), *((row.name, "") for row in shown)]
    rows = [(False, [key, *(row.setting(key) for row in shown)]) for key in keys_of(shown)]
    rows.append((False, ["layout found", *(row.shown_layout for row in shown)]))
    more = len(best) - len(shown)
    title = "Settings of the best trial" if len(sweep.objectives) == 1 else "The Pareto front"
    notes = [f"{more} more in the table below"] if more > 0 else []
    return html.exhibit("best", title, html.Table(head, rows, left=1, label=title), notes=notes)


def _figures(folder: Path) -> html.Section | None:
    pictures = [
        html.Picture(path.read_bytes(), caption, f"Chart, {beginning}: {caption}")
        for beginning, caption in _CAPTIONS.items()
        for path in sorted([*folder.glob(f"{beginning}.png"), *folder.glob(f"{beginning}-*.png")])
    ]
    return html.exhibit("figures", "Figures", pictures=pictures) if pictures else None


def _finished(sweep: Sweep) -> html.Section:
    rows, keys = done(sweep.rows), keys_of(sweep.rows)
    more = len(rows) - _MOST_ROWS
    head = [("trial", ""), ("layout", "")]
    head += [(goal.name, goal.shown_unit) for goal in sweep.objectives]
    head += [(end, key.removesuffix(end).rstrip(".")) for key, end in short_keys(keys).items()]
    head += [("parameters", ""), ("MFLOP", "per token"), ("latency", "ms"), ("attempts", "")]
    head += [("time", "s"), ("host", "")]
    cells = []
    for row in rows[:_MOST_ROWS]:
        goals = zip(sweep.objectives, row.values or [], strict=True)
        shown = [row.name, row.shown_layout, *(goal.text(value) for goal, value in goals)]
        shown += [row.setting(key) for key in keys]
        shown += ["-" if row.parameters is None else compact(row.parameters), row.mflop]
        shown += [row.latency, str(row.attempts)]
        shown += ["-" if row.elapsed_s is None else f"{row.elapsed_s:.0f}", row.host or "-"]
        cells.append((row.number in sweep.best, shown))
    body = html.render(
        "sweep_trials.html.j2",
        table=html.Table(head, cells, left=2, label="finished trials"),
        more=f"and {more} more: trials.csv" if more > 0 else "",
        latency=sweep.latency_note,
        latency_key=json.dumps(sweep.latency_key, indent=1) if sweep.latency_key else "",
    )
    return html.Section("finished", "Finished trials", body)


def _others(sweep: Sweep) -> html.Section | None:
    """Trials without a value: the failed ones first, with their reasons."""
    keys = short_keys(keys_of(sweep.rows))
    cells = []
    for row in valueless(sweep.rows):
        settings = ", ".join(f"{keys[key]} {row.setting(key)}" for key in row.params)
        said = [row.name, row.state, row.reason or "-", settings, row.host or "-"]
        if row.state != "waiting":
            cells.append((False, [*said, str(row.attempts)]))
    head = [(name, "") for name in ("trial", "state", "reason", "settings", "host", "attempts")]
    table = html.Table(head, cells, left=5, label="trials without a value")
    return html.exhibit("others", "Trials without a value", table) if cells else None


def _how(sweep: Sweep) -> html.Section | None:
    known = {text: sweep.commands[name] for name, text in _HOW.items() if name in sweep.commands}
    body = html.render("sweep_commands.html.j2", steps=known)
    return html.Section("how", "How to go on", body) if known else None
