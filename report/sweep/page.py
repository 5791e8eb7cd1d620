"""One self-contained HTML page about a sweep, also while it runs."""

import json
from collections.abc import Sequence
from pathlib import Path

from report import html
from report.plotting import compact
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
from utils.files import write_whole

_PNG = b"\x89PNG\r\n\x1a\n"
_MOST_ROWS = 50
_CAPTIONS = {  # beginning of a figure's name: what it shows
    "history": "Every trial in order, and the best so far.",
    "pareto": "What the finished trials reach; on the line no trial is beaten in all objectives.",
    "importances": (
        "How much of the differences each setting explains by itself, among the trials that have "
        "it; a bar that ends below its mark is no more than chance."
    ),
    "slice": "The value over each setting; paler marks are earlier trials.",
    "contour": "The value over pairs of settings that matter most; white: no trial near.",
}


def write_sweep_report(run: Path) -> Path:
    """Write `report.html` into the sweep's folder, from `sweep.json` and `figures/*.png`.

    Raises:
        ValueError: `sweep.json` is missing or damaged.
    """
    sweep = read_sweep(run / "sweep.json")
    sections = [
        _result(sweep),
        _best(sweep),
        _figures(run / "figures"),
        _finished(sweep),
        _others(sweep),
        _how(sweep),
    ]
    page = html.page(sweep.name, "".join(sections))
    return write_whole(run / "report.html", page.encode("utf-8", errors="replace"))


def _result(sweep: Sweep) -> str:
    parts = [html.verdict(headline(sweep))]
    if done(sweep.rows):
        parts.append(html.paragraph(warning(sweep)))
        if "confirm" in sweep.commands:
            parts.append(html.commands([sweep.commands["confirm"]]))
    facts = {
        "trials": f"{counts(sweep.rows)} (of {sweep.trials_wanted})",
        "minimised": "; ".join(f"{goal.name}, {goal.shown_unit}" for goal in sweep.objectives),
        "sampler": sweep.sampler,
        "pruner": sweep.pruner,
        "storage": sweep.storage,
    }
    parts.append(html.facts({name: value for name, value in facts.items() if value}))
    return html.section("Result", "".join(parts))


def _best(sweep: Sweep) -> str:
    """The settings of the best trial, or of all that no other one beats, beside the baseline's."""
    known = {row.number: row for row in done(sweep.rows)}
    best = [known[number] for number in sweep.best if number in known] or front(sweep.rows)
    baseline = baseline_of(sweep.rows)
    if not best:
        return ""
    others = [row for row in best if baseline is None or row.number != baseline.number]
    shown = [*([baseline] if baseline else []), *others][:9]
    head = [("setting", ""), *((_name(row), "") for row in shown)]
    body = [("", [key, *(row.setting(key) for row in shown)]) for key in keys_of(shown)]
    layouts = ("", ["layout found", *(row.shown_layout for row in shown)])
    more = len(best) + bool(baseline) - len(shown)
    note = html.note(f"{more} more in the table below") if more > 0 else ""
    title = "Settings of the best trial" if len(sweep.objectives) == 1 else "The Pareto front"
    return html.section(title, html.table(head, [*body, layouts], left=1) + note)


def _name(row: Row) -> str:
    return f"trial {row.number}" + (" (baseline)" if row.baseline else "")


def _figures(folder: Path) -> str:
    parts = []
    for beginning, caption in _CAPTIONS.items():
        for path in sorted([*folder.glob(f"{beginning}.png"), *folder.glob(f"{beginning}-*.png")]):
            content = path.read_bytes() if path.is_file() else b""
            if content.startswith(_PNG):
                parts.append(html.image(content, caption))
    return html.section("Figures", "".join(parts)) if parts else ""


def _finished(sweep: Sweep) -> str:
    rows = done(sweep.rows)
    if not rows:
        return ""
    best = set(sweep.best) or {row.number for row in front(sweep.rows)}
    table = _table(sweep, rows[:_MOST_ROWS], best)
    more = len(rows) - _MOST_ROWS
    note = html.note(f"and {more} more: trials.csv") if more > 0 else ""
    latency = html.note(sweep.latency_note) if sweep.latency_note else ""
    key = json.dumps(sweep.latency_key, indent=1) if sweep.latency_key else ""
    folded = html.collapsible("how latency was measured", key) if key else ""
    return html.section("Finished trials", table + note + latency + folded)


def _table(sweep: Sweep, rows: Sequence[Row], best: set[int]) -> str:
    keys = keys_of(sweep.rows)
    short = short_keys(keys)
    head = [("trial", ""), ("layout", "")]
    head += [(goal.name, goal.shown_unit) for goal in sweep.objectives]
    head += [(short[key], key.removesuffix(short[key]).rstrip(".")) for key in keys]
    head += [("parameters", ""), ("MFLOP", "per token"), ("latency", "ms"), ("attempts", "")]
    head += [("time", "s"), ("host", "")]
    body = []
    for row in rows:
        assert row.values is not None
        cells = [_name(row), row.shown_layout]
        cells += [goal.text(v) for goal, v in zip(sweep.objectives, row.values, strict=True)]
        cells += [row.setting(key) for key in keys]
        cells += [
            "-" if row.parameters is None else compact(row.parameters),
            row.mflop,
            row.latency,
            str(row.attempts),
            "-" if row.elapsed_s is None else f"{row.elapsed_s:.0f}",
            row.host or "-",
        ]
        body.append(("searched" if row.number in best else "", cells))
    return html.table(head, body, left=2)


def _others(sweep: Sweep) -> str:
    """Trials without a value: the failed ones first, with their reasons."""
    rows = [row for row in valueless(sweep.rows) if row.state != "waiting"]
    if not rows:
        return ""
    keys = short_keys(keys_of(sweep.rows))
    body = []
    for row in rows:
        settings = ", ".join(f"{keys[key]} {row.setting(key)}" for key in row.params)
        cells = [_name(row), row.state, row.reason or "-", settings, row.host or "-"]
        body.append(("", [*cells, str(row.attempts)]))
    head = [(name, "") for name in ("trial", "state", "reason", "settings", "host", "attempts")]
    return html.section("Trials without a value", html.table(head, body, left=5))


def _how(sweep: Sweep) -> str:
    introductions = {
        "sweep": "Go on, or run what is left:",
        "rerun": "Search with the best settings, at full length:",
        "dashboard": "Look at it in optuna-dashboard (pip install optuna-dashboard):",
    }
    parts = [
        html.paragraph(text) + html.commands([sweep.commands[name]])
        for name, text in introductions.items()
        if name in sweep.commands
    ]
    return html.section("How to go on", "".join(parts)) if parts else ""
