"""The first screen of the page: the answer, or what is known so far, without scrolling.

L slots
"""

import re
from collections.abc import Sequence
from typing import Any

from report import html
from report.comparison import Comparison, Interval, significant
from report.layouts import Contender, Palette, Stack, in_order_of_interest, stack, stack_columns
from report.run_files import Trajectory
from utils.text import NO_CONTEXT, compact, shorten

# Layouts beside the chosen one by the columns that a stack takes: what 1280 pixels hold.
_BESIDE = {1: 5, 2: 2}
# Characters that find room on the first screen, of the verdict and of one of its lines, and of a
# warning, of which so many are shown; the whole text stands below.
_VERDICT, _LINE, _WARNING, _MOST_WARNINGS = 520, 260, 230, 3


def answer(
    contenders: Sequence[Contender],
    comparison: Comparison | None,
    palette: Palette,
    *,
    likeliest: Trajectory | None,
    pi_L: Sequence[float | None] | None,
    caveats: Sequence[str],
    caveats_key: str,
    next_command: str,
    front: str,
) -> html.Section:
    """The chosen layout beside its opponents, and what is said of them.

    `pi_L` are those that it was chosen with; the pi of the search `likeliest` is shown where no
    layout was derived yet; `front` is said where nothing was compared; the section `caveats_key`
    has all caveats in full.
    """
    reference = comparison.reference if comparison else ""
    ordered = in_order_of_interest(contenders, reference)
    columns = stack_columns(max((len(one.labels) for one in ordered), default=1))
    shown = ordered[: 1 + _BESIDE.get(columns, 1)]
    roles = {reference: "the reference"} | {one.name: "chosen" for one in shown if one.is_chosen}
    said = [line.removeprefix("warning: ") for line in caveats]

    def stack_of(one: Contender) -> Stack:
        sure = pi_L if one.is_chosen and pi_L and len(pi_L) == len(one.labels) else None
        return stack(one.labels, palette, sure, numbered=one.is_chosen)

    body = html.render(
        "answer.html.j2",
        shown=[(one, roles.get(one.name, one.role), stack_of(one)) for one in shown],
        figures=_figures(shown) if shown else [],
        tall=columns > 1,
        more=len(ordered) - len(shown),
        likeliest=_likeliest(likeliest, palette) if likeliest else None,
        blind=next((line[:1].upper() + line[1:] for line in said if NO_CONTEXT in line), ""),
        warnings=[shorten(line, _WARNING) for line in said[:_MOST_WARNINGS]],
        caveats=said,
        caveats_key=caveats_key,
        next_command=next_command,
        chosen=next((one for one in contenders if one.is_chosen), None),
        others_trained=any(one.nats is not None for one in ordered if not one.is_chosen),
        front=front,
        compared=_compared(contenders, comparison) if comparison else None,
    )
    return html.Section("answer", "The answer" if comparison else "So far", body)


def _likeliest(trajectory: Trajectory, palette: Palette) -> tuple[int, Stack]:
    """The last step of a search, and each slot's likeliest candidate there."""
    pi_LC = trajectory.pi_NLC[-1]
    labels = [trajectory.labels[int(k)] for k in pi_LC.argmax(axis=1)]
    return int(trajectory.step_N[-1]), stack(labels, palette, pi_LC.max(axis=1).tolist())


def _figures(shown: Sequence[Contender]) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """Title, unit and cells of each row of figures, as far as any layout has them.

    A cell is the value, and its interval as small print.
    """
    seeds = max(one.seeds for one in shown)
    known = any(one.nats_interval for one in shown)
    over = f"{seeds} seeds, {'95%' if known else 'no interval'}"
    timed = any(one.latency_interval for one in shown)
    rows = [
        ("test nats", over if seeds > 1 else "one seed, no interval",
         [_mean(one.nats, one.nats_interval, ".4f") for one in shown]),
        ("chosen less it", "nats, by seed",
         [_mean(one.less, one.less_interval, "+.4f") for one in shown]),
        ("latency", "median ms, 95%" if timed else "ms, no interval",
         [_median(one.latency_ms, one.latency_interval) for one in shown]),
        ("FLOPs", "per token",
         [("" if one.flops is None else compact(one.flops), "") for one in shown]),
    ]  # fmt: skip
    return [row for row in rows if any(value for value, _ in row[2])]


def _mean(value: float | None, interval: Interval | None, form: str) -> tuple[str, str]:
    """A mean and the half of its interval, which lies evenly around it."""
    half = f"\u00b1 {(interval[1] - interval[0]) / 2:.4f}" if interval else ""
    return ("", "") if value is None else (format(value, form), half)


def _median(value: float | None, interval: Interval | None) -> tuple[str, str]:
    """A median and the ends of its interval."""
    ends = f"[{significant(interval[0])}, {significant(interval[1])}]" if interval else ""
    return ("", "") if value is None else (significant(value), ends)


def _compared(contenders: Sequence[Contender], comparison: Comparison) -> dict[str, Any]:
    """The saving and the verdict, as much as the screen holds.

    Of a long verdict the line of the reference and the general ones stay; of the others is said
    what they come to.
    """
    reference, chosen = comparison.reference, comparison.chosen
    lines = comparison.verdict.splitlines()
    savings = [line for line in lines if line.startswith("at ")]
    lines = [line for line in lines if line not in savings]
    is_whole = sum(map(len, lines)) <= _VERDICT
    if not is_whole:
        others = {one.name for one in contenders if not one.is_chosen} - {reference}
        general = [line for line in lines if others.isdisjoint(re.split(r"[\s:(]+", line))]
        shown = [one.shown for one in contenders if not one.is_chosen and one.shown is not None]
        better, worse = shown.count("better"), shown.count("worse")
        lines = [shorten(line, _LINE) for line in general[:2]]
        lines += [
            f"of {len(shown)} layouts beside it: better than {better}, worse than {worse}, no "
            f"difference shown with {len(shown) - better - worse}"
        ] * bool(shown)
    own = next((one for one in contenders if one.is_chosen), None)
    if own is None or own.nats is None:
        saving = "No chosen layout is among what was compared."
    elif savings:
        saving = f"{chosen}: {savings[0]}"
    else:
        itself = "is the reference itself, and " if chosen == reference else ""
        saving = f"{chosen} {itself}comes to {own.nats:.4f} nats per test token."
    unmeasured = all(one.latency_ms is None for one in contenders)
    return {
        "saving": saving,
        "verdict": lines,
        "verdict_is_whole": is_whole,
        "latency_note": shorten(comparison.latency_note, _WARNING) if unmeasured else "",
    }
