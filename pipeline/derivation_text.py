"""What a derivation scored, trained and chose, as CSV for its files and as text for the screen."""

import math
from collections.abc import Sequence
from statistics import fmean

from model import Architecture, Evidence, TimedCost, layout_letters
from nas.costs.budget import tokens_per_second
from nas.derivation import Considered, Expected, Trained
from utils.files import csv_of

_SHOWN = 10


def considered_csv(considered: Sequence[Considered]) -> str:
    """All scored layouts in the order in which they were scored; differences paired by text."""
    best = min(considered, key=_nats)
    rows = []
    for scored in considered:
        less, error = scored.score.less(best.score)
        rows.append(
            {
                "layout": layout_letters(scored.layout),
                "log_pi": round(scored.log_pi, 6),
                "nats_per_token": round(scored.score.nats_per_token, 6),
                "standard_error": round(scored.score.standard_error, 6),
                "less_best": round(less, 6),
                "less_best_error": round(error, 6),
                "flops_per_token": scored.flops_per_token,
            }
        )
    return csv_of(rows, list(rows[0]))


def considered_text(considered: Sequence[Considered]) -> str:
    """The best of them for the screen."""
    ranked = sorted(considered, key=_nats)
    letters = [layout_letters(scored.layout) for scored in ranked[:_SHOWN]]
    width = max(map(len, ["layout", *letters]))
    lines = [f"{'layout':<{width}}  {'log pi':>8}  {'nats':>8}  {'error':>7}  less the best"]
    for layout, scored in zip(letters, ranked, strict=False):
        score, (less, error) = scored.score, scored.score.less(ranked[0].score)
        lines.append(
            f"{layout:<{width}}  {scored.log_pi:>8.3f}  "
            f"{score.nats_per_token:>8.4f}  {score.standard_error:>7.4f}  "
            f"{less:+.4f} ({error:.4f})"
        )
    if len(ranked) > _SHOWN:
        lines.append(f"and {len(ranked) - _SHOWN} more")
    return "\n".join(lines)


def _nats(scored: Considered) -> float:
    return scored.score.nats_per_token


def trained_csv(trained: Sequence[Trained]) -> str:
    """What was trained, in order: what it came to, and what is expected of it at full length."""
    rows = [
        {
            "layout": layout_letters(one.layout),
            "length": one.length,
            "seed": one.seed,
            "valid_nats": one.nats,
            "expected_nats": round(one.expected_nats, 6),
            "expected_sd": round(one.expected_sd, 6),
            "rule": one.rule,
            "flops_per_token": round(one.flops_per_token, 1),
            "foreseen_nats": "" if one.foreseen is None else round(one.foreseen, 6),
            "answer": "yes" if one.is_answer else "",
        }
        for one in trained
    ]
    return csv_of(rows, list(rows[0]))


def front_csv(front: Sequence[Expected]) -> str:
    """The networks that no cheaper one is expected to beat, the cheapest first."""
    rows = [
        {
            "layout": layout_letters(one.layout),
            "flops_per_token": round(one.flops_per_token, 1),
            "expected_nats": round(one.nats, 6),
            "expected_sd": round(one.sd, 6),
        }
        for one in front
    ]
    return csv_of(rows, list(rows[0]))


def trained_text(trained: Sequence[Trained]) -> str:
    """The layouts that were trained, the best expected one first, for the screen."""
    by_layout: dict[str, list[Trained]] = {}
    for one in sorted(trained, key=lambda one: one.expected_nats):
        by_layout.setdefault(layout_letters(one.layout), []).append(one)
    width = max(map(len, ["layout", *by_layout]))
    lines = [f"{'layout':<{width}}  {'half':>7}  {'full':>7}  expected"]
    for letters, rows in by_layout.items():
        half = _mean([one.nats for one in rows if one.length == "half"])
        full = _mean([one.nats for one in rows if one.length == "full"])
        first = rows[0]
        lines.append(
            f"{letters:<{width}}  {half:>7}  {full:>7}  {first.expected_nats:.4f} "
            f"(sd {first.expected_sd:.4f})  {first.rule}".rstrip()
        )
    return "\n".join(lines)


def _mean(nats: Sequence[float]) -> str:
    return f"{fmean(nats):.4f}" if nats else ""


def describe(architecture: Architecture, average: float) -> str:
    """Layout, confidence per slot, costs, gap and caveats, for the screen.

    `average` is the part of a search's steps whose alpha is averaged.
    """
    evidence = architecture.evidence or Evidence(method="unknown")
    costs = architecture.costs
    lines = [f"layout {architecture.letters()}   ({architecture.name})"]
    if evidence.pi:
        lines.append(f"pi of alpha's mean over the last {average:.0%} of the steps:")
    alike = evidence.agreement.slots if evidence.agreement else None
    for slot, (pi, margin) in enumerate(zip(evidence.pi, evidence.margins, strict=True)):
        shown = "  ".join(f"{label} {value:.3f}" for label, value in pi.items())
        agree = "" if alike is None else f"  pairs alike {alike[slot]:.2f}"
        lines.append(f"  slot {slot:>2}  {shown}  margin {margin:.3f}{agree}")
    if costs is not None:
        lines.append(
            f"{costs.parameters:,} parameters, {costs.flops_per_token / 1e6:.3f} MFLOP per token"
        )
        lines += map(_timed_text, costs.times)
    if evidence.budget is not None:
        lines.append(f"within {evidence.budget}")
    if (gap := evidence.gap) is not None:
        nets = {"soft": gap.soft, f"sampled x {gap.draws}": gap.sampled, "one-hot": gap.one_hot}
        parts = ", ".join(
            f"{name} {measured.nats_per_token:.4f} ({measured.standard_error:.4f})"
            for name, measured in nets.items()
        )
        lines += [
            f"discretisation gap, nats on {gap.tokens:,} validation tokens (standard error over "
            f"the text, not over searches): {parts}",
            f"perplexity of one-hot over soft: {gap.ratio:.4f} ({gap.ratio_error:.4f})",
        ]
    return "\n".join([*lines, *evidence.caveats])


def _timed_text(time: TimedCost) -> str:
    tokens = [time.key.get(name, "") for name in ("batch", "segment")]
    # A file from elsewhere may hold any words there.
    if time.name == "throughput" and all(one.isdecimal() and len(one) < 10 for one in tokens):
        count = tokens_per_second(math.prod(map(int, tokens)), time.ms)
        shown, side = f"{count} tokens per second", "least"
        parts = [time.reference_ms / ms for ms in (time.ms, time.most_ms)]
    else:
        shown, side = f"{time.ms:.4g} ms", "most"
        parts = [ms / time.reference_ms for ms in (time.ms, time.most_ms)]
    return (
        f"{time.name} {shown}, {parts[0]:.3f}x of {time.reference} (at {side} {parts[1]:.3f}x), "
        "measured in turn"
    )
