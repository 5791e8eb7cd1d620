"""One self-contained HTML page about a sweep, also while it runs: the answer first."""

from collections.abc import Sequence
from pathlib import Path

from report import html
from report.layouts import Palette, Stack, palette_of
from report.sweep.tables import headline
from report.sweep.trials import (
    Summary,
    TrialRow,
    baseline_of,
    counts,
    done,
    front,
    in_order,
    keys_of,
    short_keys,
)
from utils.text import compact

_MOST_ROWS, _MOST_STACKS = 50, 4
_CAPTIONS = {  # beginning of a figure's name: what it shows
    "history": "Every trial in order, and the best so far; one on the upper edge is worse.",
    "pareto": "What the finished trials reach; on the line no trial is beaten in all objectives.",
    "slice": (
        "The value over each setting; paler marks are earlier trials. Above a panel: how much of "
        "the differences the setting explains by itself, among the trials that have it, and what "
        "chance alone reaches."
    ),
}


def write_sweep_report(run: Path, sweep: Summary, figures: Sequence[Path]) -> Path:
    """Write `sweep.html` into the sweep's folder, with its figures."""
    palette = palette_of(one.split() for row in sweep.rows for one in _layouts(row))
    # The best trials, or all that no other one beats, behind the baseline.
    baseline = baseline_of(sweep.rows)
    best = [row for row in front(sweep.rows) if row != baseline]
    best = [baseline, *best] if baseline else best
    sections = [
        _result(sweep, best, palette),
        _figures(figures) if figures else None,
        _trials(sweep),
    ]
    return html.write_page(run / "sweep.html", sweep.name, sections, palette.block_px)


def _result(sweep: Summary, best: list[TrialRow], palette: Palette) -> html.Section:
    """The first screen: the layouts that were found beside the baseline's, and what is said."""
    found = [row for row in best if row.layout][:_MOST_STACKS]
    body = html.render(
        "sweep.html.j2",
        drawn=[
            (Stack(one.split(), palette), row.name, _reached(sweep, row))
            for row in found
            for one in _layouts(row)
        ],
        headline=headline(sweep),
        finished=len(done(sweep.rows)),
        confirm=sweep.confirm,
        facts={
            "trials": f"{counts(sweep.rows)} (of {len(sweep.rows)})",
            "minimised": "; ".join(f"{goal.name}, {goal.unit}" for goal in sweep.objectives),
            **sweep.facts,
        },
    )
    return html.Section("answer", "Result", body)


def _layouts(row: TrialRow) -> list[str]:
    """Those that the seeds of a trial derived, each once."""
    return row.layout.split(" / ") if row.layout else []


def _reached(sweep: Summary, row: TrialRow) -> list[str]:
    """Values of a trial, one for each objective."""
    values = zip(row.shown_values(sweep.objectives), sweep.objectives, strict=True)
    return [f"{value} {goal.unit}" for value, goal in values]


def _figures(figures: Sequence[Path]) -> html.Section:
    pictures = []
    for path in figures:
        kind = path.stem.partition("-")[0]
        caption = _CAPTIONS[kind]
        pictures.append(html.Picture(path.read_bytes(), caption, f"Chart, {kind}: {caption}"))
    return html.exhibit("figures", "Figures", pictures=pictures)


def _trials(sweep: Summary) -> html.Section:
    """All trials that were begun: the finished ones by their values, then failed and other ones."""
    rows = [row for row in in_order(sweep.rows) if row.state != "waiting"]
    keys, best = keys_of(sweep.rows), front(sweep.rows)
    head = [("trial", ""), ("state", ""), ("layout", "")]
    head += [(goal.name, goal.unit) for goal in sweep.objectives]
    head += [(end, key.removesuffix(end).rstrip(".")) for key, end in short_keys(keys).items()]
    head += [("parameters", ""), ("FLOPs", "per token"), ("attempts", ""), ("time", "s")]
    head += [("host", ""), ("reason", "")]
    cells = []
    for row in rows[:_MOST_ROWS]:
        shown = [row.name, row.state, row.shown_layout, *row.shown_values(sweep.objectives)]
        shown += [row.setting(key) for key in keys]
        shown += [_size(row.parameters), _size(row.flops_per_token), str(row.attempts)]
        shown += ["-" if row.elapsed_s is None else f"{row.elapsed_s:.0f}", row.host or "-"]
        cells.append((row in best, [*shown, row.reason or ""]))
    more = [f"and {len(rows) - _MOST_ROWS} more: trials.csv"] if len(rows) > _MOST_ROWS else []
    table = html.Table(head, cells, left=3, label="trials")
    return html.exhibit("trials", "Trials", table, notes=more)


def _size(number: float | None) -> str:
    return "-" if number is None else compact(number)
