"""What may be said about a difference: effect, interval, and when nothing may be said."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy.special import nctdtrinc, stdtr, stdtrit

# More degrees of freedom than these count as these: intervals are wider by 4% at most.
_MOST_FREEDOM = 30
# How often the smallest visible difference is shown.
_POWER = 0.8
NOTHING = "nothing"
# What a p value must lie below for a difference to be shown.
LEVEL = 0.05


def t95(freedom: int) -> float:
    """Two-sided 95% quantile of Student's t; above 30 degrees of freedom that of 30.

    To three decimals: recorded figures were made with printed tables.
    """
    return round(_critical(freedom, LEVEL), 3)


def _critical(freedom: int, level: float) -> float:
    """What |t| must exceed for a two-sided p value below the level."""
    return float(stdtrit(min(freedom, _MOST_FREEDOM), 1 - level / 2))


def smallest_visible(half_width: float, n: int, comparisons: int = 1) -> float:
    """The true difference over n members that is shown four times in five at this spread.

    The half-width of the 95% interval at hand is t95 standard errors, and t of a true difference
    is noncentral. Of several comparisons the first is to pass a level divided by their number (Holm
    1979), whatever the others come to.
    """
    critical = _critical(n - 1, LEVEL / comparisons)
    standard_errors = float(nctdtrinc(n - 1, 1 - _POWER, critical))
    return half_width / t95(n - 1) * standard_errors


def shown_at(mean: float, p: float) -> str:
    """`better`, `worse` or `nothing`, by a p value of one less other where less is better."""
    return NOTHING if p >= LEVEL else "better" if mean < 0 else "worse"


def comparison_words(one: str, other: str, shown: str, visible: str, *, verb: str = "is") -> str:
    """Which of two is better, or that nothing is shown.

    `visible` is the smallest visible difference, as it is to be shown.
    """
    if shown == NOTHING:
        return f"{one} and {other}: no difference shown (the smallest visible one is {visible})"
    return f"{one} {verb} {shown} than {other} (the smallest visible difference is {visible})"


def paired_interval(differences: Sequence[float]) -> tuple[float, float]:
    """Mean and half-width of the 95% interval of two or more paired differences (Student's t)."""
    n = len(differences)
    if n < 2:
        raise ValueError(f"an interval needs two differences or more, found {n}")
    return statistics.fmean(differences), t95(n - 1) * statistics.stdev(differences) / math.sqrt(n)


@dataclass(frozen=True)
class PairedDifference:
    """One's results less another's, in pairs; less is better.

    The 95% interval is of this comparison alone. `p` is adjusted for all `comparisons` that are
    made at once, and it alone says whether a difference is shown.
    """

    mean: float
    half_width: float
    n: int
    p: float
    comparisons: int

    @property
    def interval(self) -> tuple[float, float]:
        """Both ends."""
        return self.mean - self.half_width, self.mean + self.half_width

    @property
    def shown(self) -> str:
        """What is shown of the one beside the other: `better`, `worse` or `nothing`."""
        return shown_at(self.mean, self.p)


def paired_differences(
    ones: Sequence[float], others: Mapping[str, Sequence[float]]
) -> dict[str, PairedDifference]:
    """One's two or more results less those of each of the others, all in one order of pairs.

    The p values are Student's, adjusted by Holm's method for as many others as there are: by 95%
    intervals one of four equal ones would be called better or worse in a sixth of comparisons.
    """
    found = {
        name: paired_interval([a - b for a, b in zip(ones, values, strict=True)])
        for name, values in others.items()
    }
    n = len(ones)
    p_values = [_p_of(mean, half, n) for mean, half in found.values()]
    return {
        name: PairedDifference(mean, half, n, p, len(found))
        for (name, (mean, half)), p in zip(found.items(), holm(p_values, len(found)), strict=True)
    }


def _p_of(mean: float, half_width: float, n: int) -> float:
    freedom = min(n - 1, _MOST_FREEDOM)
    if not half_width:
        return 1.0 if mean == 0 else 0.0
    return students_p(mean / half_width * t95(freedom), freedom)


def students_p(t: float, freedom: int) -> float:
    """Two-sided p value of Student's t."""
    return float(2 * stdtr(freedom, -abs(t)))


def paired_line(one: str, other: str, difference: PairedDifference, unit: str) -> str:
    """What paired results say of one against another."""
    visible = smallest_visible(difference.half_width, difference.n, difference.comparisons)
    words = comparison_words(one, other, difference.shown, f"{visible:.4f}")
    low, high = difference.interval
    return (
        f"{words}: {one} less {other} {difference.mean:+.4f} {unit}, "
        f"95% interval [{low:+.4f}, {high:+.4f}] over {difference.n}"
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
    name: str, searched: Sequence[float], baselines: Mapping[str, Sequence[float]]
) -> list[str]:
    """One line per baseline about one layout, on test nats per token, in one order of seeds."""
    if (n := len(searched)) < 2:
        return [f"no verdict possible (n = {n})"]
    compared = paired_differences(searched, baselines)
    several = len(compared) > 1
    lines = [
        f"{paired_line(name, other, difference, 'nats/token')} retraining seeds"
        + (f", p {difference.p:.4f}" if several else "")
        for other, difference in compared.items()
    ]
    if several:
        lines.append(
            f"shown is what has p below {LEVEL} by Holm's method over all {len(compared)} "
            "baselines; an interval is of one alone"
        )
    return [*lines, "one search run: nothing follows about the search itself"]


def holm(values: Sequence[float], planned: int) -> list[float]:
    """Adjusted p values of some of the planned comparisons, in the order of `values` (Holm 1979).

    Those that are not made yet count as the last, so that no adjusted value grows when they are.
    """
    assert planned >= len(values)
    adjusted, least = [0.0] * len(values), 0.0
    for rank, number in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        least = max(least, min(1.0, (planned - rank) * values[number]))
        adjusted[number] = least
    return adjusted
