"""What trained arms say: lines of rates, choices, arms and comparisons, and the rows of a figure.

Primary comparisons are paired differences over seeds (Student's t); one with a margin asks for a
one-sided 95% bound below it. The others are Welch's, p values by Holm's method over all that are
planned. A comparison is made when all seeds of its arms are trained: nothing is read midway.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from benchmarks.arms import (
    Arm,
    Arms,
    Comparison,
    Group,
    arms_by_name,
    choice_nats,
    chosen,
    nats_by_rate,
    next_trainings,
    rate_of,
    rows_of_network,
    settings_words,
)
from benchmarks.arms_figure import ArmRow
from benchmarks.layout_rows import WORKLOADS, Row
from nas.statistics.intervals import NOTHING, holm, paired_interval, shown_at

# Below this Student's t is so wide that Welch's interval, over all seeds of both arms, says more.
FEWEST_PAIRS = 5


class Difference(NamedTuple):
    """A difference of means, the half-width of its 95% interval, and its two-sided p value."""

    mean_nats: float
    half_nats: float
    p: float


def welch(ones: Sequence[float], others: Sequence[float]) -> Difference | None:
    """The mean of `ones` less that of `others`, each with a deviation of its own (Welch 1947).

    None with fewer than two trainings on a side. One deviation for all arms would be wrong: that of
    a layout whose seeds begin to copy sooner or later is far larger than that of the others.
    """
    if min(len(ones), len(others)) < 2:
        return None
    test = stats.ttest_ind(ones, others, equal_var=False)
    low, high = test.confidence_interval(0.95)
    return Difference(float(np.mean(ones) - np.mean(others)), (high - low) / 2, float(test.pvalue))


@dataclass(frozen=True)
class TrainedArm:
    """An arm, the layout that it came to, and its test nats by fresh seed."""

    arm: Arm
    layout: str
    nats: Mapping[int, float]

    @property
    def network(self) -> tuple[str, str]:
        """What was trained; arms of two names may share it."""
        return self.layout, settings_words(self.arm.settings)

    @property
    def is_complete(self) -> bool:
        """Whether every seed is trained."""
        return len(self.nats) == len(self.arm.seeds)

    @property
    def steps(self) -> object:
        """How many steps it is trained for, where that is not the experiment's number."""
        return self.arm.settings.get("retrain.steps")


def trained_arms(arms: Arms, rows: Sequence[Row]) -> dict[str, TrainedArm]:
    """Every arm of which a fresh seed is trained, by name and in the order of the file."""
    trained = {
        name: TrainedArm(
            arm, layout, nats_of(arm, layout, rate_of(arms, layout, rows, arm.settings), rows)
        )
        for name, (arm, layout) in arms_by_name(arms, rows).items()
        if layout is not None
    }
    return {name: one for name, one in trained.items() if one.nats}


def report_lines(arms: Arms, rows: Sequence[Row], times: Mapping[str, Any]) -> Iterator[str]:
    """All there is to say so far; `times` is what `write_times` wrote, or empty."""
    yield from rate_lines(arms, rows)
    missing = next_trainings(arms, rows)
    if missing:
        yield f"not all is trained yet; next are {len(missing)} trainings"
    if missing and missing[0][-1] == arms.rate_seed:
        return
    for group in arms.groups:
        yield from choice_lines(arms, group, rows)
    trained = trained_arms(arms, rows)
    yield from (arm_line(name, trained, times) for name in trained)
    nats = {name: one.nats for name, one in trained.items()}
    can = comparisons_of(arms, trained)
    yield from (primary_line(one, nats) for one in can if one.primary)
    planned = sum(not one.primary for one in arms.comparisons)
    yield from comparison_lines([one for one in can if not one.primary], trained, planned)
    yield from (f"planned: {_names(one)}" for one in arms.comparisons if one not in can)


def comparisons_of(arms: Arms, trained: Mapping[str, TrainedArm]) -> list[Comparison]:
    """The comparisons of which every seed of both sides is trained."""
    complete = {name for name, one in trained.items() if one.is_complete}
    return [one for one in arms.comparisons if {one.arm, *one.against} <= complete]


def figure_rows(arms: Arms, rows: Sequence[Row], times: Mapping[str, Any]) -> list[ArmRow]:
    """What the figure shows: the first arm, and beside it those of primary comparisons.

    Where none is primary, those of all.
    """
    trained = trained_arms(arms, rows)
    if not (can := comparisons_of(arms, trained)):
        return []
    first, base = next(iter(trained.items()))
    drawn = [one for one in can if one.primary] or can
    shown = {first}.union(*({one.arm, *one.against} for one in drawn))
    ms = times.get("latency", {}).get("median_ms", {})

    def row(name: str, one: TrainedArm) -> ArmRow:
        less = () if one.network == base.network else tuple(paired(one.nats, base.nats))
        share = ms[name] / ms[first] if name in ms else None
        interval = interval_beside(one, base)
        return ArmRow(name, one.layout, less, interval, share, one.arm.layout is None)

    return [row(name, one) for name, one in trained.items() if name in shown]


def paired(nats: Mapping[int, float], others: Mapping[int, float]) -> list[float]:
    """Differences of the seeds that both have."""
    return [nats[seed] - others[seed] for seed in sorted(nats.keys() & others.keys())]


def interval_beside(one: TrainedArm, base: TrainedArm) -> tuple[float, float] | None:
    """Mean and half-width of an arm less another: of pairs where there are enough, or Welch's."""
    less = paired(one.nats, base.nats)
    if one.network != base.network and len(less) >= FEWEST_PAIRS:
        return paired_interval(less)
    difference = difference_of(one, [base])
    return None if difference is None else difference[:2]


def difference_of(one: TrainedArm, others: Sequence[TrainedArm]) -> Difference | None:
    """An arm less another's trainings, or less the means of several networks, each counted once.

    None where there is nothing to say: with fewer than two figures on a side, or where the arm is
    one of the others' network.
    """
    nats = {other.network: [*other.nats.values()] for other in others}
    if one.network in nats:
        return None
    means = [fmean(of) for of in nats.values()]
    return welch([*one.nats.values()], means if len(others) > 1 else nats[others[0].network])


def rate_lines(arms: Arms, rows: Sequence[Row]) -> Iterator[str]:
    """Validation nats by rate of what is tried, an option's best beside the plain best."""
    least = dict[str, float]()
    for layout in arms.rate_layouts:
        nats = nats_by_rate(arms, layout, {}, rows)
        least[layout] = min(nats.values(), default=math.inf)
        yield f"rate: {layout:13}{_rates(nats)}"
    for option in arms.options:
        for layout in option.layouts:
            nats = nats_by_rate(arms, layout, option.settings, rows)
            line = f"rate: {layout:13}{_rates(nats)}  {option.name}"
            if len(nats) == len(arms.rates) and layout in least:
                line += f" {min(nats.values()) - least[layout]:+.4f}"
            yield line


def _rates(nats: Mapping[float, float]) -> str:
    return "".join(f"  {rate:g}: {nats[rate]:.4f}" for rate in sorted(nats))


def choice_lines(arms: Arms, group: Group, rows: Sequence[Row]) -> Iterator[str]:
    """Validation nats of the networks that a group chooses among, the best first."""
    nats = choice_nats(arms, group, rows)
    order = sorted(nats, key=lambda layout: min(nats[layout].values(), default=math.inf))
    for layout in order:
        words = "".join(f"  seed {seed}: {nats:.4f}" for seed, nats in nats[layout].items())
        yield f"{group.name}: {layout:13}{words}"
    if group.among:
        yield f"{group.name}: choice {chosen(arms, group, rows) or 'not made yet'}"


def comparison_lines(
    comparisons: Sequence[Comparison], trained: Mapping[str, TrainedArm], planned: int
) -> Iterator[str]:
    """Differences with p values by Holm's method over all that are planned."""
    weighed = list[tuple[Comparison, Difference]]()
    for one in comparisons:
        others = [trained[name] for name in one.against]
        if difference := difference_of(trained[one.arm], others):
            weighed.append((one, difference))
        else:
            yield f"compared: {_names(one)}: one network, or a single training"
    adjusted = holm([difference.p for _, difference in weighed], planned)
    for (one, (mean, half, _)), p in zip(weighed, adjusted, strict=True):
        words = f"{mean:+.4f} +- {half:.4f} nats, p {p:.4f} (Holm, {planned} comparisons)"
        shown = shown_at(mean, p)
        verdict = "no difference shown" if shown == NOTHING else shown
        yield f"compared: {_names(one)} {words}: {verdict}"


def nats_of(arm: Arm, layout: str, rate: float, rows: Sequence[Row]) -> dict[int, float]:
    """Test nats by fresh seed."""
    return {
        int(row["seed"]): float(row["test_nats"])
        for row in rows_of_network(layout, arm.settings, rows)
        if float(row["lr"]) == rate and int(row["seed"]) in arm.seeds
    }


def arm_line(name: str, trained: Mapping[str, TrainedArm], times: Mapping[str, Any]) -> str:
    """An arm's mean test nats and its costs, beside the first arm that has as many steps."""
    one = trained[name]
    base = next(other for other, its in trained.items() if its.steps == one.steps)
    values = [*one.nats.values()]
    spread = f" (sd {np.std(values, ddof=1):.4f})" if len(values) > 1 else ""
    words = f"{name:32} {one.layout:13} n {len(values)}  {np.mean(values):.4f}{spread} nats"
    less = paired(one.nats, trained[base].nats)
    if interval := interval_beside(one, trained[base]):
        words += f"  {interval[0]:+.4f} +- {interval[1]:.4f}"
    elif less and one.network != trained[base].network:
        words += f"  {np.mean(less):+.4f}"
    for workload in times.keys() & set(WORKLOADS):
        ms = times[workload]["median_ms"]
        if name in ms:
            words += f"  {workload} {ms[name] / ms[base]:.3f}x"
    return words


def primary_line(comparison: Comparison, nats: Mapping[str, Mapping[int, float]]) -> str:
    """The verdict of a paired comparison over the seeds that both have."""
    (other,) = comparison.against
    less = paired(nats[comparison.arm], nats[other])
    mean, half = paired_interval(less)
    head = f"primary: {_names(comparison)} {mean:+.4f} +- {half:.4f} nats over {len(less)} seeds"
    if comparison.margin_nats is None:
        return f"{head}: {'better' if mean + half < 0 else 'not shown to be better'}"
    error = np.std(less, ddof=1) / math.sqrt(len(less))
    bound = mean + float(stats.t.ppf(0.95, len(less) - 1)) * float(error)
    kept = "not worse by" if bound < comparison.margin_nats else "not shown to be within"
    return f"{head}; one-sided bound {bound:+.4f}: {kept} {comparison.margin_nats} nats"


def _names(comparison: Comparison) -> str:
    others = comparison.against
    mean = f"the mean of {len(others)} ({others[0]} to {others[-1]})"
    return f"{comparison.arm} less {others[0] if len(others) == 1 else mean}"
