"""The first screen of the page: the answer, or what is known so far, without scrolling.

L blocks
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from report import html
from report.comparison import Comparison, perplexity_text, significant
from report.layouts import Palette, Stack, in_order_of_interest, stack_columns
from report.run_files import Trajectory
from utils.text import NO_CONTEXT, compact, shorten

# Layouts beside the chosen one by the columns that a stack takes: what 1280 pixels hold.
_BESIDE = {1: 5, 2: 2}
# Characters that find room on the first screen, of a line of the verdict and of a warning, and the
# most of both; the whole text is below.
_LINE, _WARNING, _MOST_LINES, _MOST_WARNINGS = 260, 230, 3, 3


def answer(
    contenders: pd.DataFrame,
    comparison: Comparison | None,
    palette: Palette,
    *,
    likeliest: Trajectory | None,
    pi_L: Sequence[float | None] | None,
    budget: str,
    caveats: Sequence[str],
    caveats_key: str,
    next_command: str,
    trained: str,
) -> html.Section:
    """The chosen layout beside its baselines, with the verdict.

    `contenders` are rows of `report.layouts.compared`. The chosen one was chosen with `pi_L`,
    within a `budget` if there was one; the search `likeliest` is shown where no layout was derived
    yet, `trained` where nothing was compared; the section `caveats_key` has all caveats in full.
    """
    reference = comparison.reference if comparison else ""
    ordered = in_order_of_interest(contenders, reference)
    columns = stack_columns(max(map(len, ordered["labels"]), default=1))
    shown = ordered.head(1 + _BESIDE.get(columns, 1))
    chosen = next(iter(ordered[ordered["is_chosen"]].to_dict("records")), None)
    said = [line.removeprefix("warning: ") for line in caveats]

    def drawn(row: dict[Any, Any]) -> tuple[dict[Any, Any], str, Stack]:
        labels, own = row["labels"], row["is_chosen"]
        role = "chosen" if own else "the reference" if row["is_reference"] else row["role"]
        sure = pi_L if own and pi_L and len(pi_L) == len(labels) else None
        return row, role, Stack(labels, palette, sure, numbered=own)

    body = html.render(
        "answer.html.j2",
        shown=[drawn(row) for row in shown.to_dict("records")],
        figures=_figures(shown),
        tall=columns > 1,
        more=len(ordered) - len(shown),
        likeliest=_likeliest(likeliest, palette) if likeliest else None,
        blind=next((line[:1].upper() + line[1:] for line in said if NO_CONTEXT in line), ""),
        warnings=[shorten(line, _WARNING) for line in said[:_MOST_WARNINGS]],
        caveats=said,
        budget=budget[:1].upper() + budget[1:],
        caveats_key=caveats_key,
        next_command=next_command,
        chosen=chosen,
        others_trained=ordered["nats_per_token"][~ordered["is_chosen"].astype(bool)].notna().any(),
        trained=trained,
        compared=_compared(ordered, chosen, comparison) if comparison else None,
    )
    return html.Section("answer", "The answer" if comparison else "So far", body)


def _likeliest(trajectory: Trajectory, palette: Palette) -> tuple[int, Stack]:
    """The last step of a search, and each block's likeliest candidate there."""
    pi_LC = trajectory.pi_NLC[-1]
    labels = [trajectory.labels[int(k)] for k in pi_LC.argmax(axis=1)]
    return int(trajectory.step_N[-1]), Stack(labels, palette, pi_LC.max(axis=1).tolist())


def _figures(shown: pd.DataFrame) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """Title, unit and cells of each row of figures, as far as any layout has them.

    A cell is the value, and its interval as small print: of a mean, which is in its middle, the
    half of it.
    """

    def cells(key: str, show: Callable[[float], str], of: str = "") -> list[tuple[str, str]]:
        found = []
        for row in shown.to_dict("records"):
            low, high = (float(row.get(f"{of}_{end}", math.nan)) for end in ("low", "high"))
            ends = (
                f"[{show(low)}, {show(high)}]"
                if of == "latency"
                else f"\u00b1 {(high - low) / 2:.4f}"
            )
            ends = "" if math.isnan(low) else ends
            found.append(("", "") if pd.isna(row[key]) else (show(row[key]), ends))
        return found

    seeds = shown["n"].max()
    over = f"{seeds:.0f} seeds, {'95%' if shown['nats_low'].notna().any() else 'no interval'}"
    timed = "median ms, 95%" if shown["latency_low"].notna().any() else "ms, no interval"
    rows = [
        ("test perplexity", "", cells("perplexity", perplexity_text)),
        ("loss, nats", over if seeds > 1 else "one seed, no interval",
         cells("nats_per_token", "{:.4f}".format, "nats")),
        ("chosen \u2212 this", "nats, by seed", cells("less", "{:+.4f}".format, "less")),
        ("latency", timed, cells("latency_ms", significant, "latency")),
        ("FLOPs/token", "", cells("flops_per_token", compact)),
    ]  # fmt: skip
    return [row for row in rows if any(value for value, _ in row[2])]


def _compared(
    rows: pd.DataFrame, chosen: dict[Any, Any] | None, comparison: Comparison
) -> dict[str, Any]:
    """The saving and the verdict; of a long one the reference's line, the last one and counts."""
    whole = lines = comparison.verdict.splitlines()
    counts = rows["shown"][~rows["is_chosen"]].value_counts()
    if len(lines) > _MOST_LINES:
        place = [*comparison.rows["name"]].index(comparison.reference)
        lines = [lines[max(place - 1, 0)], lines[-1]]
        if total := counts.sum():
            better, worse = counts.get("better", 0), counts.get("worse", 0)
            found = {"better than": better, "worse than": worse}
            found["not shown to differ from"] = total - better - worse
            parts = ", ".join(f"{words} {count}" for words, count in found.items() if count)
            lines.append(f"Of {total} baselines, the chosen layout is {parts}.")
    shown = [shorten(line, _LINE) for line in lines]
    if chosen is None:
        saving = "No chosen layout is among what was compared."
    elif not (saving := comparison.saving):
        itself = " is the reference itself" if chosen["is_reference"] else ""
        perplexity = perplexity_text(chosen["perplexity"])
        saving = f"{chosen['title']}{itself}: perplexity {perplexity} per test token."
    noted = rows["latency_ms"].isna().all() or "uncertain" in comparison.latency_note
    return {
        "saving": saving,
        "verdict": shown,
        "verdict_is_whole": shown == whole,
        "latency_note": shorten(comparison.latency_note, _WARNING) if noted else "",
    }
