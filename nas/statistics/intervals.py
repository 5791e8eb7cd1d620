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
# One-sided 80% quantiles, for the difference that would be seen four times in five.
_T80 = (
    1.376, 1.061, 0.978, 0.941, 0.920, 0.906, 0.896, 0.889, 0.883, 0.879,
    0.876, 0.873, 0.870, 0.868, 0.866, 0.865, 0.863, 0.862, 0.861, 0.860,
    0.859, 0.858, 0.858, 0.857, 0.856, 0.856, 0.855, 0.855, 0.854, 0.854,
)  # fmt: skip


def t95(freedom: int) -> float:
    """Two-sided 95% quantile of Student's t; above 30 degrees of freedom that of 30."""
    return _T95[min(freedom, len(_T95)) - 1]


def smallest_visible(half_width: float, n: int) -> float:
    """The true difference whose 95% interval over n members excludes 0 four times in five.

    The half-width of the interval at hand is t95 standard errors; t80 (one-sided) more are added.
    """
    at = min(n - 1, len(_T95)) - 1
    return half_width * (1.0 + _T80[at] / _T95[at])


def comparison_words(
    one: str, other: str, interval: tuple[float, float], visible: str, *, verb: str = "is"
) -> str:
    """Which of two is better by an interval of one less other, or that nothing is shown.

    Less is better; `visible` is the smallest visible difference, as it is to be shown.
    """
    low, high = interval
    if low <= 0 <= high:
        return f"{one} and {other}: no difference shown (the smallest visible one is {visible})"
    word = "better" if high < 0 else "worse"
    return f"{one} {verb} {word} than {other} (the smallest visible difference is {visible})"


def paired_interval(differences: Sequence[float]) -> tuple[float, float]:
    """Mean and half-width of the 95% interval of two or more paired differences (Student's t)."""
    n = len(differences)
    if n < 2:
        raise ValueError(f"an interval needs two differences or more, found {n}")
    return statistics.fmean(differences), t95(n - 1) * statistics.stdev(differences) / math.sqrt(n)


def paired_line(
    one: str, other: str, ones: Sequence[float], others: Sequence[float], unit: str
) -> str:
    """What two or more paired results say of one against another, where less is better."""
    n = len(ones)
    mean, half = paired_interval([a - b for a, b in zip(ones, others, strict=True)])
    low, high = mean - half, mean + half
    words = comparison_words(one, other, (low, high), f"{smallest_visible(half, n):.4f}")
    return (
        f"{words}: {one} less {other} {mean:+.4f} {unit}, "
        f"95% interval [{low:+.4f}, {high:+.4f}] over {n}"
    )


def at_cost(
    share: float, cost: str, other: str, ones: Sequence[float], others: Sequence[float]
) -> str:
    """What a layout of so much of another one's cost gives up in nats, over paired seeds."""
    differences = [a - b for a, b in zip(ones, others, strict=True)]
    head = f"at {share:.2f}x of {other}'s {cost} its nats are"
    if len(differences) < 2:
        return f"{head} {differences[0]:+.4f} (n = 1, no interval)"
    mean, half = paired_interval(differences)
    return f"{head} {mean:+.4f} [{mean - half:+.4f}, {mean + half:+.4f}] (n = {len(differences)})"


def verdict(
    name: str, searched: Sequence[float], opponents: Mapping[str, Sequence[float]]
) -> list[str]:
    """One line per opponent about one layout, on test nats per token, in one order of seeds."""
    if (n := len(searched)) < 2:
        return [f"no verdict possible (n = {n})"]
    return [
        *(
            f"{paired_line(name, other, searched, nats, 'nats/token')} retraining seeds"
            for other, nats in opponents.items()
        ),
        "one search run: nothing follows about the search itself",
    ]
