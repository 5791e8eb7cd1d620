"""What a derivation found, as a table and in words."""

from collections.abc import Sequence

from model import Agreement, Architecture, Evidence, Gap, layout_letters
from nas.derivation import Considered
from training.tables import csv_of

_SHOWN = 10
# One-hot over soft perplexity above which a layout read off pi is warned of, and the margin of pi
# below which a slot counts as open.
_MOST_RATIO, _OPEN = 1.03, 0.1
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
    """Layout, confidence per slot, costs, gap and agreement, for the screen."""
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
    if evidence.agreement is not None:
        lines.append(agreement_line(evidence.agreement))
    return "\n".join([*lines, *_gap_lines(evidence)])


def agreement_line(found: Agreement) -> str:
    """Kappa with its interval, and whether chance does as well."""
    searches = f"agreement of {len(found.searches)} searches"
    if found.kappa is None:
        return f"{searches}: all chose one candidate in every slot; no kappa"
    interval = "no interval (too few slots, or too few that differ)"
    if found.interval is not None:
        low, high = found.interval
        interval = f"95% interval [{low:.3f}, {high:.3f}] over {len(found.slots)} slots"
    said = f"{searches}: kappa {found.kappa:.3f}, {interval}"
    if found.p_by_chance is not None:
        said += f"; choices put into slots at random agree as much with p = {found.p_by_chance:.4f}"
    return said


def _gap_lines(evidence: Evidence) -> list[str]:
    gap = evidence.gap
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
    lines = [
        f"discretisation gap, nats on {gap.tokens:,} validation tokens (standard error over the "
        f"text, not over searches): {parts}",
        f"perplexity of one-hot over soft: {gap.ratio:.4f} ({gap.ratio_error:.4f})",
    ]
    # One that was chosen by its score is no reading of pi that could be wrong.
    read_off = evidence.inherited is None
    return [*lines, _warning(evidence, gap)] if read_off and gap.ratio > _MOST_RATIO else lines


def _warning(evidence: Evidence, gap: Gap) -> str:
    numbers = [str(slot) for slot, margin in enumerate(evidence.margins) if margin < _OPEN]
    where = f"; slots that pi leaves open (margin below {_OPEN}): {', '.join(numbers)}"
    return (
        f"warning: this layout costs {gap.ratio - 1:.1%} more perplexity than pi's mixture (more "
        f"than {_MOST_RATIO - 1:.0%}){where if numbers else ''}. Derive another by --method top_k, "
        "which scores the likeliest layouts, and retrain both"
    )
