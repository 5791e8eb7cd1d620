"""What may be said about a difference: effect, interval, and when nothing may be said."""

import math
import statistics
from collections.abc import Mapping, Sequence

# Two-sided 95% quantiles of Student's t for 1 to 30 degrees of freedom.
_T95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


def paired_interval(differences: Sequence[float]) -> tuple[float, float]:
    """Mean and half-width of the 95% interval of paired differences (Student's t).

    Raises:
        ValueError: fewer than two differences.
    """
    n = len(differences)
    if n < 2:
        raise ValueError(f"an interval needs two differences or more, found {n}")
    t = _T95[min(n - 1, len(_T95)) - 1]
    return statistics.fmean(differences), t * statistics.stdev(differences) / math.sqrt(n)


def verdict(searched: Sequence[float], opponents: Mapping[str, Sequence[float]]) -> list[str]:
    """One line per opponent about this one layout, on test nats per token, paired by seed.

    Args:
        searched: the searched layout's nats, one per seed.
        opponents: the opponents' nats by name, in the same order of seeds.
    """
    n = len(searched)
    if n < 2:
        return [f"no verdict possible (n = {n})"]
    lines = []
    for name, nats in opponents.items():
        mean, half = paired_interval([a - b for a, b in zip(searched, nats, strict=True)])
        if abs(mean) <= half:
            word = "not better than"
        else:
            word = "better than" if mean < 0 else "worse than"
        lines.append(
            f"this layout is {word} {name}: {mean:+.4f} nats/token, 95% interval "
            f"[{mean - half:+.4f}, {mean + half:+.4f}] over {n} retraining seeds; smallest "
            f"difference that could have been seen: {half:.4f}"
        )
    lines.append("one search run: nothing follows about the search itself")
    return lines
