"""What a derivation found, as a table and in words."""

from collections.abc import Sequence

from model import Architecture, Evidence, Gap, layout_letters
from nas.derivation import Considered
from utils.files import csv_of

_SHOWN = 10
COLUMNS = (
    "layout",
    "log_pi",
    "nats_per_token",
    "standard_error",
    "less_best",
    "less_best_error",
    "flops_per_token",
)


def considered_csv(considered: Sequence[Considered]) -> str:
    """All scored layouts in the order in which they were scored; differences paired by text."""
    best = _best(considered)
    rows = []
    for each in considered:
        score, (less, error) = each.score, each.score.less(best.score)
        numbers = (each.log_pi, score.nats_per_token, score.standard_error, less, error)
        rounded = [round(value, 6) for value in numbers]
        row = [layout_letters(each.layout), *rounded, each.flops_per_token]
        rows.append(dict(zip(COLUMNS, row, strict=True)))
    return csv_of(rows, COLUMNS)


def considered_text(considered: Sequence[Considered]) -> str:
    """The best of them for the screen."""
    best = _best(considered)
    ranked = sorted(considered, key=lambda each: each.score.nats_per_token)
    width = max(len("layout"), *(len(layout_letters(each.layout)) for each in ranked[:_SHOWN]))
    lines = [f"{'layout':<{width}}  {'log pi':>8}  {'nats':>8}  {'error':>7}  less the best"]
    for each in ranked[:_SHOWN]:
        score, (less, error) = each.score, each.score.less(best.score)
        lines.append(
            f"{layout_letters(each.layout):<{width}}  {each.log_pi:>8.3f}  "
            f"{score.nats_per_token:>8.4f}  {score.standard_error:>7.4f}  "
            f"{less:+.4f} ({error:.4f})"
        )
    if len(ranked) > _SHOWN:
        lines.append(f"and {len(ranked) - _SHOWN} more")
    return "\n".join(lines)


def _best(considered: Sequence[Considered]) -> Considered:
    return min(considered, key=lambda each: each.score.nats_per_token)


def describe(architecture: Architecture) -> str:
    """Layout, confidence per slot, costs, gap and caveats, for the screen."""
    evidence = architecture.evidence or Evidence(method="unknown")
    costs = architecture.costs
    lines = [f"layout {architecture.letters()}   ({architecture.name})"]
    alike = evidence.agreement.slots if evidence.agreement else None
    for slot, (pi, margin) in enumerate(zip(evidence.pi, evidence.margins, strict=True)):
        shown = "  ".join(f"{label} {value:.3f}" for label, value in pi.items())
        agree = "" if alike is None else f"  pairs alike {alike[slot]:.2f}"
        lines.append(f"  slot {slot:>2}  {shown}  margin {margin:.3f}{agree}")
    if costs is not None:
        lines.append(
            f"{costs.parameters:,} parameters, {costs.flops_per_token / 1e6:.3f} MFLOP per token"
        )
    return "\n".join([*lines, *_gap_lines(evidence.gap), *evidence.caveats])


def _gap_lines(gap: Gap | None) -> list[str]:
    if gap is None:
        return []
    parts = ", ".join(
        f"{name} {measured.nats_per_token:.4f} ({measured.standard_error:.4f})"
        for name, measured in (
            ("soft", gap.soft),
            (f"sampled x {gap.draws}", gap.sampled),
            ("one-hot", gap.one_hot),
        )
    )
    return [
        f"discretisation gap, nats on {gap.tokens:,} validation tokens (standard error over the "
        f"text, not over searches): {parts}",
        f"perplexity of one-hot over soft: {gap.ratio:.4f} ({gap.ratio_error:.4f})",
    ]
