"""The first screen of the page: the answer, or what is known so far, without scrolling.

L slots
"""

from collections.abc import Sequence
from dataclasses import dataclass

from report import html
from report.comparison import Comparison, Interval, significant
from report.layouts import Contender, in_order_of_interest
from report.run_files import Trajectory
from report.stack import Palette, Stack, stack, stack_columns
from utils.text import NO_CONTEXT, compact, shorten

# Layouts beside the chosen one by the columns that a stack takes: what 1280 pixels hold.
_BESIDE = {1: 5, 2: 2}
# Characters that find room on the first screen; the whole text stands below.
_VERDICT, _LINE, _WARNINGS, _WARNING = 520, 260, 560, 230


@dataclass(frozen=True)
class Known:
    """Contents of the first screen; `pi_L` are those that the chosen layout was chosen with.

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


@dataclass(frozen=True)
class _Figure:
    """A row of figures: of each layout the value, and its interval as small print."""

    title: str
    unit: str
    cells: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class _Compared:
    """Sentences about a comparison; `latency_note` only where no latency was measured."""

    saving: str
    verdict: Sequence[str]
    verdict_is_whole: bool
    latency_note: str


def answer(known: Known, palette: Palette) -> html.Section:
    """The chosen layout beside its opponents, and what is said of them."""
    reference = known.comparison.reference if known.comparison else ""
    ordered = in_order_of_interest(known.contenders, reference)
    columns = stack_columns(max((len(one.labels) for one in ordered), default=1))
    shown = ordered[: 1 + _BESIDE.get(columns, 1)]
    roles = {reference: "the reference"} | {one.name: "chosen" for one in shown if one.is_chosen}
    caveats = [line.removeprefix("warning: ") for line in known.caveats]
    warnings = _fitting(caveats, _WARNINGS, _WARNING)
    body = html.render(
        "answer.html.j2",
        shown=[
            (one, roles.get(one.name, one.role), _stack(one, known.pi_L, palette)) for one in shown
        ],
        figures=_figures(shown) if shown else [],
        tall=columns > 1,
        more=len(ordered) - len(shown),
        likeliest=_likeliest(known.likeliest, palette),
        blind=next((line[:1].upper() + line[1:] for line in caveats if NO_CONTEXT in line), ""),
        warnings=warnings,
        caveats=caveats,
        caveats_key=known.caveats_key,
        next_command=known.next_commands[0] if known.next_commands else "",
        chosen=next((one for one in known.contenders if one.is_chosen), None),
        others_trained=any(one.nats is not None for one in ordered if not one.is_chosen),
        front=known.front,
        compared=_compared(known, known.comparison) if known.comparison else None,
    )
    return html.Section("answer", "The answer" if known.comparison else "So far", body)


def _stack(one: Contender, pi_L: Sequence[float | None] | None, palette: Palette) -> Stack:
    """The chosen layout with numbers and pi, where they are of it; others bare."""
    sure = pi_L if one.is_chosen and pi_L and len(pi_L) == len(one.labels) else None
    return stack(one.labels, palette, sure, numbered=one.is_chosen)


def _likeliest(trajectory: Trajectory | None, palette: Palette) -> tuple[int, Stack] | None:
    """The last step of a search, and each slot's likeliest candidate there."""
    if trajectory is None:
        return None
    pi_LC = trajectory.pi_NLC[-1]
    labels = [trajectory.labels[int(k)] for k in pi_LC.argmax(axis=1)]
    return int(trajectory.step_N[-1]), stack(labels, palette, pi_LC.max(axis=1).tolist())


def _figures(shown: Sequence[Contender]) -> list[_Figure]:
    """Name, unit and cells of each figure that is known of at least one layout."""
    seeds = max(one.seeds for one in shown)
    known = any(one.nats_interval for one in shown)
    over = "one seed, no interval" if seeds < 2 else f"{seeds} seeds, "
    over += "" if seeds < 2 else "95%" if known else "no interval"
    timed = any(one.latency_interval for one in shown)
    rows = (
        ("test nats", over, [_mean(one.nats, one.nats_interval, ".4f") for one in shown]),
        ("chosen less it", "nats, by seed",
         [_mean(one.less, one.less_interval, "+.4f") for one in shown]),
        ("latency", "median ms, 95%" if timed else "ms, no interval",
         [_median(one.latency_ms, one.latency_interval) for one in shown]),
        ("FLOPs", "per token",
         [("" if one.flops is None else compact(one.flops), "") for one in shown]),
    )  # fmt: skip
    return [_Figure(*row) for row in rows if any(value for value, _ in row[2])]


def _mean(value: float | None, interval: Interval | None, form: str) -> tuple[str, str]:
    """A mean and the half of its interval, which lies evenly around it."""
    half = f"\u00b1 {(interval[1] - interval[0]) / 2:.4f}" if interval else ""
    return ("", "") if value is None else (format(value, form), half)


def _median(value: float | None, interval: Interval | None) -> tuple[str, str]:
    """A median and the ends of its interval."""
    ends = f"[{significant(interval[0])}, {significant(interval[1])}]" if interval else ""
    return ("", "") if value is None else (significant(value), ends)


def _compared(known: Known, comparison: Comparison) -> _Compared:
    """The saving and the verdict, as much as the screen holds."""
    reference = comparison.reference
    lines = [
        line
        for line in comparison.verdict.splitlines()
        if not (reference and line.startswith("at "))  # the saving says this one
    ]
    shown = lines
    if sum(map(len, lines)) > _VERDICT:
        # The line of the reference and the general ones; of the others what they come to.
        others = {one.name for one in known.contenders if not one.is_chosen} - {reference}
        short = [line for line in lines if not _about(line, others)]
        shown = [*_fitting(short, _VERDICT, _LINE), *_tally(known.contenders)]
    unmeasured = all(one.latency_ms is None for one in known.contenders)
    return _Compared(
        saving(known.contenders, reference),
        shown,
        verdict_is_whole=shown == lines,
        latency_note=shorten(comparison.latency_note, _WARNING) if unmeasured else "",
    )


def _about(line: str, names: set[str]) -> bool:
    """True of a line of the verdict that sets the chosen layout against one of these."""
    words = (f" {join} {name}{end}" for name in names for join in ("and", "than") for end in ": (")
    return any(word in line for word in words)


def _tally(contenders: Sequence[Contender]) -> list[str]:
    """Against how many layouts a difference is shown, in a line; none where no file says it."""
    shown = [one.shown for one in contenders if not one.is_chosen and one.shown is not None]
    if not shown:
        return []
    better, worse = shown.count("better"), shown.count("worse")
    return [
        f"of {len(shown)} layouts beside it: better than {better}, worse than {worse}, no "
        f"difference shown with {len(shown) - better - worse}"
    ]


def _fitting(lines: Sequence[str], room: int, longest: int) -> list[str]:
    """The first lines that find room, each shortened."""
    shown = list[str]()
    for line in lines:
        short = shorten(line, longest)
        room -= len(short)
        if room < 0:
            break
        shown.append(short)
    return shown


def saving(contenders: Sequence[Contender], reference: str) -> str:
    """Cost and nats of the chosen layout beside the reference, in a sentence."""
    chosen = next((one for one in contenders if one.is_chosen), None)
    other = next((one for one in contenders if one.name == reference), None)
    if chosen is None or chosen.nats is None:
        return "No chosen layout is among what was compared."
    if other is None or other is chosen or other.nats is None:
        itself = "is the reference itself, and " if other is chosen else ""
        return f"{chosen.name} {itself}comes to {chosen.nats:.4f} nats per test token."
    nats = _nats_words(chosen, other, chosen.nats - other.nats)
    return f"{chosen.name} {_cost_words(chosen, other)} {other.name}, and {nats}."


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
    if share > 0:
        return f"saves {share:.0%} of the {what} of"
    return f"has {-share:.0%} more {what} than"


def _nats_words(chosen: Contender, other: Contender, difference: float) -> str:
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
    return f"its nats per token are {side}, which is {meaning}: {ends}"
