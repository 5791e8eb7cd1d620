"""What may be said about a difference: effect, interval, and when nothing may be said."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
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
    """Which of two is better, or neither; `visible` is the smallest visible difference, as text."""
    if shown == NOTHING:
        both = f"no difference shown between {one} and {other}"
        return f"{both} (the smallest visible one is {visible})"
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
    p_values = [students_p(mean, half, n) for mean, half in found.values()]
    return {
        name: PairedDifference(mean, half, n, p, len(found))
        for (name, (mean, half)), p in zip(found.items(), holm(p_values, len(found)), strict=True)
    }


def students_p(mean: float, half_width: float, n: int) -> float:
    """Two-sided p value of Student's t, from the 95% interval of n differences."""
    freedom = min(n - 1, _MOST_FREEDOM)
    if not half_width:
        return 1.0 if mean == 0 else 0.0
    return float(2 * stdtr(freedom, -abs(mean / half_width * t95(freedom))))


def percent(nats: float) -> str:
    """A difference of nats per token as one of perplexity, with its sign."""
    share = math.expm1(nats)
    return f"{100 * share:+.1f}%" if share < 10 else f"{100 * share:+.0e}%"


def change_words(
    ones: Sequence[float],
    others: Sequence[float],
    measure: str = "perplexity",
    show: Callable[[float], str] = percent,
) -> str:
    """How much higher or lower the ones' measure is, paired by seed; `show` writes a difference."""
    less = [a - b for a, b in zip(ones, others, strict=True)]
    mean, spread = statistics.fmean(less), "one seed, no interval"
    if len(less) > 1:
        half = paired_interval(less)[1]
        spread = f"95% interval {show(mean - half)} to {show(mean + half)}, {len(less)} seeds"
    return f"{measure} is {show(mean)[1:]} {'higher' if mean > 0 else 'lower'} ({spread})"


def verdict(searched: Sequence[float], baselines: Mapping[str, Sequence[float]]) -> list[str]:
    """A line for each baseline, in their order, then two of what follows; by nats per token."""
    if len(searched) < 2:
        return ["not testable with one seed: it could be chance"]
    compared, lines = paired_differences(searched, baselines), list[str]()
    adjusted = "adjusted " if len(compared) > 1 else ""
    for other, found in compared.items():
        visible = smallest_visible(found.half_width, found.n, found.comparisons)
        least = f"{percent(visible)[1:]}, {visible:.4f} nats/token"
        words = comparison_words("the chosen layout", other, found.shown, least)
        lines.append(
            f"{words[0].upper()}{words[1:]}: {change_words(searched, baselines[other])}, "
            f"{found.mean:+.4f} nats/token, {adjusted}p {found.p:.4f}"
        )
    if len(compared) > 1:
        lines.append(
            f"A difference is shown where p is below {LEVEL} by Holm's method over all "
            f"{len(compared)} baselines; each interval is for one baseline alone."
        )
    return [*lines, "The seeds repeat the training: nothing follows about the search itself."]


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
