"""The first screen of the page: the answer, or what is known so far, without scrolling.

L slots
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from report import html
from report.comparison import Comparison, Interval, significant
from report.contenders import Contender, in_order_of_interest
from report.run_files import Trajectory
from report.stack import Palette, stack, stack_columns
from utils.text import NO_CONTEXT, compact, shorten

KEY = "answer"
# Layouts beside the chosen one by the columns that a stack takes: what 1280 pixels hold.
_BESIDE = {1: 5, 2: 2}
# Characters that find room on the first screen; the whole text stands below.
_VERDICT, _LINE, _WARNINGS, _WARNING = 520, 260, 560, 230


@dataclass(frozen=True)
class Known:
    """What the first screen is made of; `pi_L` are those that the chosen layout was chosen with.

    `likeliest` is shown where no layout was derived yet; `front` is said of a Pareto front where
    nothing was compared; the section `caveats_key` has all caveats in full.
    """

    contenders: Sequence[Contender]
    comparison: Comparison | None = None
    likeliest: Trajectory | None = None
    pi_L: Sequence[float | None] | None = None
    caveats: Sequence[str] = ()
    next_commands: Sequence[str] = ()
    front: str = ""
    caveats_key: str = "derived"


def answer(known: Known, palette: Palette) -> html.Section:
    """The chosen layout beside its opponents, and what is said of them."""
    reference = known.comparison.reference if known.comparison else ""
    ordered = in_order_of_interest(known.contenders, reference)
    if ordered:
        slots = max(len(one.labels) for one in ordered)
        shown = ordered[: 1 + _BESIDE.get(stack_columns(slots), 1)]
        left = _table(shown, known.pi_L, reference, palette)
        if more := len(ordered) - len(shown):
            left += html.link("layouts", f"{more} more below" if more > 1 else "1 more below")
    else:
        left = _likeliest(known.likeliest, palette)
    says = _blind(known) + (_compared(known) if known.comparison else _so_far(known))
    left += f'<div class="says">{_warnings(known)}</div>'
    body = f'<div class="answer"><div>{left}</div><div class="says">{says}</div></div>'
    title = "The answer" if known.comparison else "So far"
    return html.Section(KEY, title, body, "first")


def _likeliest(trajectory: Trajectory | None, palette: Palette) -> str:
    if trajectory is None:
        return html.paragraph("Nothing was searched or derived yet.")
    pi_LC = trajectory.pi_NLC[-1]
    labels = [trajectory.labels[int(k)] for k in pi_LC.argmax(axis=1)]
    drawn = stack(labels, palette, pi_LC.max(axis=1).tolist())
    words = f"Likeliest at step {int(trajectory.step_N[-1])}, with pi; the first slot is lowest."
    return f'{html.paragraph(words)}<div class="layouts"><div class="wide">{drawn}</div></div>'


def _table(
    shown: Sequence[Contender], pi_L: Sequence[float | None] | None, reference: str,
    palette: Palette,
) -> str:  # fmt: skip
    """Stacks side by side, with a row for each figure that one of them has."""
    own = [' class="own"' if one.is_chosen else "" for one in shown]
    roles = {reference: "the reference"} | {one.name: "chosen" for one in shown if one.is_chosen}
    heads = "".join(
        f'<th scope="col"{kind}>{escape(one.name)}'
        f"<small>{escape(roles.get(one.name, one.role))}</small></th>"
        for one, kind in zip(shown, own, strict=True)
    )
    stacks = "".join(
        f"<td{kind}>{_stack(one, pi_L, palette)}</td>" for one, kind in zip(shown, own, strict=True)
    )
    rows = [_row(name, unit, shown, own, cell) for name, unit, cell in _figures(shown)]
    beside = len(shown) - 1
    tall = " tall" if max(stack_columns(len(one.labels)) for one in shown) > 1 else ""
    first = "<col>" if shown[0].is_chosen else "<col class=beside>"
    columns = f'<col class="heads">{first}{beside * "<col class=beside>"}'
    tall += "" if shown[0].is_chosen else " even"
    return html.scrolling(
        f'<table class="side beside-{beside}{tall}"><colgroup>{columns}</colgroup>'
        f'<thead><tr><th scope="col">layout</th>{heads}</tr></thead><tbody>'
        f'<tr class="stacks"><th scope="row">slots<small>the first is lowest</small></th>{stacks}'
        f"</tr>{''.join(rows)}</tbody></table>",
        "Layouts side by side",
    )


def _stack(one: Contender, pi_L: Sequence[float | None] | None, palette: Palette) -> str:
    """The chosen layout with numbers and pi, where they are of it; others bare."""
    sure = pi_L if one.is_chosen and pi_L and len(pi_L) == len(one.labels) else None
    return stack(one.labels, palette, sure, numbered=one.is_chosen)


_Cell = Callable[[Contender], str]


def _row(name: str, unit: str, shown: Sequence[Contender], own: Sequence[str], cell: _Cell) -> str:
    cells = "".join(
        f"<td{kind}>{cell(one) or '-'}</td>" for one, kind in zip(shown, own, strict=True)
    )
    title = f"{escape(name)}<small>{escape(unit)}</small>"
    return f'<tr><th scope="row">{title}</th>{cells}</tr>'


def _figures(shown: Sequence[Contender]) -> list[tuple[str, str, _Cell]]:
    """Name, unit and cell of each figure that is known of at least one layout."""
    seeds = max(one.seeds for one in shown)
    known = any(one.nats_interval for one in shown)
    over = "one seed, no interval" if seeds < 2 else f"{seeds} seeds, "
    over += "" if seeds < 2 else "95%" if known else "no interval"
    timed = any(one.latency_interval for one in shown)
    rows: list[tuple[str, str, Callable[[Contender], float | None], _Cell]] = [
        ("test nats", over, lambda one: one.nats,
         lambda one: _number(one.nats, one.nats_interval, "{:.4f}".format)),
        ("chosen less it", "nats, by seed", lambda one: one.less,
         lambda one: _number(one.less, one.less_interval, "{:+.4f}".format)),
        ("latency", "median ms, 95%" if timed else "ms, no interval", lambda one: one.latency_ms,
         lambda one: _time(one.latency_ms, one.latency_interval)),
        ("FLOPs", "per token", lambda one: one.flops,
         lambda one: "" if one.flops is None else compact(one.flops)),
    ]  # fmt: skip
    return [
        (name, unit, cell)
        for name, unit, value, cell in rows
        if any(value(one) is not None for one in shown)
    ]


def _number(value: float | None, interval: Interval | None, show: Callable[[float], str]) -> str:
    """A mean and the half of its interval, which lies evenly around it."""
    if value is None:
        return ""
    half = f"<small>\u00b1 {(interval[1] - interval[0]) / 2:.4f}</small>" if interval else ""
    return f"{show(value)}{half}"


def _time(value: float | None, interval: Interval | None) -> str:
    """A median and the ends of its interval."""
    if value is None:
        return ""
    low, high = (significant(end) for end in interval) if interval else ("", "")
    return f"{significant(value)}<small>[{low}, {high}]</small>" if interval else significant(value)


def _compared(known: Known) -> str:
    """The saving and the verdict, as much as the screen holds."""
    assert known.comparison is not None
    reference = known.comparison.reference
    parts = [html.paragraph(saving(known.contenders, reference), "saving")]
    # The saving says this one.
    lines = [
        line
        for line in known.comparison.verdict.splitlines()
        if not (reference and line.startswith("at "))
    ]
    shown = _fitting(lines, reference)
    if shown:
        tally = _tally(known.contenders) if shown != lines else ""
        said = "\n".join([*shown, tally] if tally else shown)
        parts += [html.subtitle("Verdict"), html.verdict(said)]
    if shown != lines:
        parts.append(html.link("comparison", "The whole verdict is below"))
    if all(one.latency_ms is None for one in known.contenders) and known.comparison.latency_note:
        parts.append(html.note(shorten(known.comparison.latency_note, _WARNING)))
    return "".join([*parts, _go_on(known.next_commands)])


def _tally(contenders: Sequence[Contender]) -> str:
    """Against how many layouts a difference is shown; nothing where no file says it."""
    shown = [one.shown for one in contenders if not one.is_chosen and one.shown is not None]
    if not shown:
        return ""
    better, worse = shown.count("better"), shown.count("worse")
    return (
        f"of {len(shown)} layouts beside it: better than {better}, worse than {worse}, no "
        f"difference shown with {len(shown) - better - worse}"
    )


def _blind(known: Known) -> str:
    """The warning that the chosen layout sees no context, ahead of all praise."""
    lines = [line.removeprefix("warning: ") for line in known.caveats if NO_CONTEXT in line]
    return "".join(html.paragraph(line[:1].upper() + line[1:], "saving") for line in lines[:1])


def _so_far(known: Known) -> str:
    """What is not known yet, and the command that goes on."""
    chosen = next((one for one in known.contenders if one.is_chosen), None)
    if chosen is None:
        state = "No layout was chosen yet." if known.likeliest else "The run has begun."
    elif chosen.nats is None:
        state = f"{chosen.name} is derived and not trained from scratch yet."
    else:
        seeds = "one seed" if chosen.seeds == 1 else f"{chosen.seeds} seeds"
        state = f"{chosen.name} comes to {chosen.nats:.4f} nats per test token ({seeds})."
    says = html.paragraph(state, "saving")
    others = any(one.nats is not None for one in known.contenders if one is not chosen)
    says += html.paragraph(
        "Not compared yet: the other figures are of what was trained so far."
        if others
        else "Not compared yet: nothing is known about other layouts."
    )
    if known.front:
        says += html.paragraph(known.front) + html.link("front", "The front is below")
    return says + _go_on(known.next_commands)


def _go_on(commands: Sequence[str]) -> str:
    shown = html.commands(commands[:1], "the next command")
    return html.subtitle("How to go on") + shown if shown else ""


def _warnings(known: Known) -> str:
    """The first warnings, shortened; the whole ones stand below."""
    caveats = [line.removeprefix("warning: ") for line in known.caveats]
    shown, room = list[str](), _WARNINGS
    for line in caveats:
        short = shorten(line, _WARNING)
        if len(short) > room:
            break
        shown.append(short)
        room -= len(short)
    words = f"All {len(caveats)} warnings in full" if len(caveats) > 1 else "The warning in full"
    return html.caveats(shown) + (html.link(known.caveats_key, words) if caveats != shown else "")


def _fitting(lines: Sequence[str], reference: str) -> list[str]:
    """The lines that find room, in their order: general ones first, then of the reference."""
    of_reference = tuple(f" {reference}{end}" for end in (":", " ("))
    order = sorted(
        lines,
        key=lambda line: (
            " and " in line or " than " in line,
            not any(part in line for part in of_reference),
        ),
    )
    room, chosen = _VERDICT, list[str]()
    for line in order:
        if min(len(line), _LINE) <= room:
            chosen.append(line)
            room -= min(len(line), _LINE)
    return [shorten(line, _LINE) for line in lines if line in chosen]


def saving(contenders: Sequence[Contender], reference: str) -> str:
    """What the chosen layout costs and predicts beside the reference, in a sentence."""
    chosen = next((one for one in contenders if one.is_chosen), None)
    other = next((one for one in contenders if one.name == reference), None)
    if chosen is None or chosen.nats is None:
        return "No chosen layout is among what was compared."
    if other is None or other is chosen or other.nats is None:
        itself = "is the reference itself, and " if other is chosen else ""
        return f"{chosen.name} {itself}comes to {chosen.nats:.4f} nats per test token."
    cost = _cost_words(chosen, other)
    return f"{chosen.name} {cost} {other.name}, and {_nats_words(chosen, other)}."


def _cost_words(chosen: Contender, other: Contender) -> str:
    """Latency, or where none was measured FLOPs."""
    timed = chosen.latency_ms is not None and other.latency_ms is not None
    ours, theirs = (chosen.latency_ms, other.latency_ms) if timed else (chosen.flops, other.flops)
    what = "latency" if timed else "FLOPs"
    if not ours or not theirs:
        return "stands beside"
    share = 1 - ours / theirs
    if abs(share) < 0.005:
        return f"has the {what} of"
    return f"saves {share:.0%} of the {what} of" if share > 0 else (
        f"has {-share:.0%} more {what} than"
    )  # fmt: skip


def _nats_words(chosen: Contender, other: Contender) -> str:
    difference = (chosen.nats or 0.0) - (other.nats or 0.0)
    side, meaning = ("higher", "worse") if difference > 0 else ("lower", "better")
    if other.less_interval is None:
        seeds = "one seed" if chosen.seeds == 1 else f"{chosen.seeds} seeds"
        # Without an interval it is not known to be worse.
        ends = f"({side} is {meaning}; {seeds}, no interval)"
        return f"its nats per token are {abs(difference):.4f} {side} {ends}"
    low, high = other.less_interval
    p = "" if other.p is None else f"; p {other.p:.4f}"
    ends = f"{difference:+.4f} [{low:+.4f}, {high:+.4f}] (95%, {chosen.seeds} seeds{p})"
    if other.shown == "nothing":
        return f"no difference in nats per token is shown: {ends}"
    # An older file says the interval alone.
    which = "" if other.shown is None else f", which is {meaning}"
    return f"its nats per token are {side}{which}: {ends}"
