"""One self-contained HTML page about a sweep, also while it runs: the answer first."""

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path

from report import html
from report.glossary import glossary_section
from report.stack import Palette, stack
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
from utils.text import compact

_PNG = b"\x89PNG\r\n\x1a\n"
_MOST_ROWS, _MOST_COLUMNS, _MOST_STACKS = 50, 9, 4
_CAPTIONS = {  # beginning of a figure's name: what it shows
    "history": "Every trial in order, and the best so far.",
    "pareto": "What the finished trials reach; on the line no trial is beaten in all objectives.",
    "importances": (
        "How much of the differences each setting explains by itself, among the trials that have "
        "it, equal settings once; a bar that ends below its mark is no more than chance."
    ),
    "slice": "The value over each setting; paler marks are earlier trials.",
    "contour": "The value over pairs of settings that matter most; white: no trial near.",
}


def write_sweep_report(run: Path) -> Path:
    """Write `sweep.html` into the sweep's folder, from `sweep.json` and `figures/*.png`.

    Raises:
        ValueError: `sweep.json` is missing or damaged.
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
    shown = [section for section in sections if section is not None]
    if glossary := glossary_section("".join(f"{one.title} {one.body}" for one in shown)):
        shown.append(glossary)
    page = html.page(sweep.name, shown, rules=palette.rules)
    return write_whole(run / "sweep.html", page.encode("utf-8", errors="replace"))


def _result(sweep: Sweep, palette: Palette) -> html.Section:
    """The first screen: the layouts that were found beside the baseline's, and what is said."""
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
    says = f'<div class="says">{"".join(parts)}</div>'
    body = f'<div class="answer"><div>{_stacks(sweep, palette)}</div>{says}</div>'
    return html.Section("answer", "Result", body, "first")


def _palette(sweep: Sweep) -> Palette:
    layouts = [(row.layout or "").split() for row in sweep.rows]
    return Palette([word for words in layouts for word in words], max(map(len, layouts), default=1))


def _stacks(sweep: Sweep, palette: Palette) -> str:
    """The layouts of the best trials and of the baseline as stacks, with what each came to."""
    drawn = ""
    for row in [row for row in _best_rows(sweep) if row.layout][:_MOST_STACKS]:
        values = "".join(
            f"<br>{escape(goal.text(value))} {escape(goal.shown_unit)}"
            for goal, value in zip(sweep.objectives, row.values or [], strict=True)
        )
        blocks = stack((row.layout or "").split(), palette)
        drawn += f"<div>{blocks}<p><strong>{escape(_name(row))}</strong>{values}</p></div>"
    if not drawn:
        return html.paragraph("No finished trial has a layout yet.")
    words = html.note("What was found: a block for each slot, the first one lowest.")
    return f'<div class="layouts">{drawn}</div>{words}'


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
    body = [("", [key, *(row.setting(key) for row in shown)]) for key in keys_of(shown)]
    layouts = ("", ["layout found", *(row.shown_layout for row in shown)])
    more = len(best) - len(shown)
    note = html.note(f"{more} more in the table below") if more > 0 else ""
    title = "Settings of the best trial" if len(sweep.objectives) == 1 else "The Pareto front"
    table = html.table(head, [*body, layouts], left=1, says=title)
    return html.Section("best", title, table + note)


def _name(row: Row) -> str:
    return f"trial {row.number}" + (" (baseline)" if row.baseline else "")


def _figures(folder: Path) -> html.Section | None:
    parts = []
    for beginning, caption in _CAPTIONS.items():
        for path in sorted([*folder.glob(f"{beginning}.png"), *folder.glob(f"{beginning}-*.png")]):
            content = path.read_bytes() if path.is_file() else b""
            if content.startswith(_PNG):
                parts.append(html.image(content, caption, f"Chart, {beginning}: {caption}"))
    return html.Section("figures", "Figures", "".join(parts)) if parts else None


def _finished(sweep: Sweep) -> html.Section | None:
    rows = done(sweep.rows)
    if not rows:
        return None
    best = set(sweep.best) or {row.number for row in front(sweep.rows)}
    table = _table(sweep, rows[:_MOST_ROWS], best)
    more = len(rows) - _MOST_ROWS
    note = html.note(f"and {more} more: trials.csv") if more > 0 else ""
    latency = html.note(sweep.latency_note) if sweep.latency_note else ""
    key = json.dumps(sweep.latency_key, indent=1) if sweep.latency_key else ""
    folded = html.collapsible("how latency was measured", key) if key else ""
    return html.Section("finished", "Finished trials", table + note + latency + folded)


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
    return html.table(head, body, left=2, says="finished trials")


def _others(sweep: Sweep) -> html.Section | None:
    """Trials without a value: the failed ones first, with their reasons."""
    rows = [row for row in valueless(sweep.rows) if row.state != "waiting"]
    if not rows:
        return None
    keys = short_keys(keys_of(sweep.rows))
    body = []
    for row in rows:
        settings = ", ".join(f"{keys[key]} {row.setting(key)}" for key in row.params)
        cells = [_name(row), row.state, row.reason or "-", settings, row.host or "-"]
        body.append(("", [*cells, str(row.attempts)]))
    head = [(name, "") for name in ("trial", "state", "reason", "settings", "host", "attempts")]
    table = html.table(head, body, left=5, says="trials without a value")
    return html.Section("others", "Trials without a value", table)


def _how(sweep: Sweep) -> html.Section | None:
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
    return html.Section("how", "How to go on", "".join(parts)) if parts else None
