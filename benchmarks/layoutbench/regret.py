"""What a search is worth on a table of layouts: its regret beside random search's at equal cost.

L layouts   S seeds   R replays
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import shown_by
from benchmarks.layoutbench.table import LayoutTable
from benchmarks.ranking import ceiling_tau, kendall
from nas.statistics.intervals import comparison_words, smallest_visible, t95

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Regrets:
    """Regrets in test nats per token: how far a chosen layout lies above the best of the table.

    The best owes its place to luck too, so all regrets are too large by one amount; differences
    of two regrets are free of it. Both names stand in regret.json.
    """

    mean: float
    each: tuple[float, ...]


def regret_of(table: LayoutTable, layouts: Sequence[str]) -> Regrets:
    """The regrets of layouts that searches chose.

    A layout's test nats are those of its network, the mean over the table's seeds, which took no
    part in the choice. ValueError where its network is not in the table.
    """
    mean = table.mean_nats("test")
    best, regrets = min(mean.values()), list[float]()
    for layout in layouts:
        if (name := table.layout_of(layout)) is None:
            raise ValueError(f"layout {layout!r} is not among the table's, such as {min(mean)}")
        regrets.append(mean[name] - best)
    return Regrets(statistics.fmean(regrets), tuple(regrets))


@dataclass(frozen=True)
class RandomSearch:
    """Replays of random search: their regrets, and how often each layout was chosen, as a share."""

    regret_R: Array
    share_L: Array

    @property
    def mean(self) -> float:
        """Mean regret."""
        return float(self.regret_R.mean())


def random_search(table: LayoutTable, trainings: int, *, replays: int, seed: int) -> RandomSearch:
    """Random search: the best on validation of so many layouts trained once.

    In each replay the layouts are drawn without replacement and trained with one of the table's
    seeds; the regret is that of the other seeds' test nats, so that luck in the choice does not
    count as quality.
    """
    valid_LS, test_LS = nats_by_seed(table, "valid"), nats_by_seed(table, "test")
    layouts, seeds = valid_LS.shape
    generator = np.random.default_rng(seed)
    best = test_LS.mean(axis=1).min()
    regret_R, count_L = np.empty(replays), np.zeros(layouts)
    for replay in range(replays):
        training = int(generator.integers(seeds))
        drawn = generator.choice(layouts, size=trainings, replace=False)
        chosen = drawn[valid_LS[drawn, training].argmin()]
        regret_R[replay] = np.delete(test_LS[chosen], training).mean() - best
        count_L[chosen] += 1
    return RandomSearch(regret_R, count_L / replays)


@dataclass(frozen=True)
class Difference:
    """The mean regret of n searches less that of random search; below 0 they are better.

    `half_width` is of the 95% interval; None for a single search.
    """

    nats: float
    half_width: float | None
    n: int

    def __str__(self) -> str:
        if self.half_width is None:
            return f"{self.nats:+.4f} nats; no verdict possible (n = {self.n})"
        interval = (self.nats - self.half_width, self.nats + self.half_width)
        visible = f"{smallest_visible(self.half_width, self.n):.4f}"
        words = comparison_words(
            "the chosen layouts",
            "random search at equal cost",
            shown_by(interval),
            visible,
            verb="are",
        )
        return (
            f"{self.nats:+.4f} nats, 95% interval [{interval[0]:+.4f}, {interval[1]:+.4f}], "
            f"n = {self.n}; {words}"
        )


def difference(table: LayoutTable, layouts: Sequence[str], random: RandomSearch) -> Difference:
    """Compare searches with random search, with the noise of all that went into it.

    Three sources add up: the spread over searches, the spread over replays, and the noise of the
    table's own rows, which searches that all chose one layout would not show. It is that of one
    training, and both sides feel it by how much more often one of them chose a layout.
    """
    regrets = regret_of(table, layouts)
    nats, n = regrets.mean - random.mean, len(layouts)
    if n < 2:
        return Difference(nats, None, n)
    names = [table.layout_of(layout) for layout in layouts]
    chosen_L = np.array([names.count(layout) / n for layout in table.layouts])
    noise = table.pooled_deviation("test") ** 2 / len(table.seeds)
    variance = statistics.variance(regrets.each) / n
    variance += float(random.regret_R.var()) / len(random.regret_R)
    variance += noise * float(((chosen_L - random.share_L) ** 2).sum())
    return Difference(nats, t95(n - 1) * math.sqrt(variance), n)


@dataclass(frozen=True)
class Noise:
    """How much the rows of a table are worth.

    Attributes:
        agreement: Kendall's tau-b between the test nats of two seeds, mean over pairs of seeds.
        ceiling: what a perfect score would reach against the mean of the seeds, estimated.
        regret: of the layout with the lowest validation of one seed, on the others; mean.
        deviation: of one training's test nats, pooled over layouts.
        spread: standard deviation of the layouts' mean test nats.
    """

    agreement: float
    ceiling: float
    regret: float
    deviation: float
    spread: float


def noise_of(table: LayoutTable) -> Noise:
    """The agreement of the table's seeds, of which there must be two or more."""
    valid_LS, test_LS = nats_by_seed(table, "valid"), nats_by_seed(table, "test")
    seeds = test_LS.shape[1]
    pairs = [(one, two) for one in range(seeds) for two in range(one)]
    taus = [kendall(test_LS[:, one], test_LS[:, two]) for one, two in pairs]
    best = test_LS.mean(axis=1).min()
    regrets = [
        np.delete(test_LS[valid_LS[:, seed].argmin()], seed).mean() - best for seed in range(seeds)
    ]
    return Noise(
        agreement=statistics.fmean(0.0 if tau is None else tau for tau in taus),
        ceiling=ceiling_tau(test_LS.T),
        regret=float(np.mean(regrets)),
        deviation=table.pooled_deviation("test"),
        spread=float(test_LS.mean(axis=1).std(ddof=1)),
    )


def nats_by_seed(table: LayoutTable, split: str) -> Array:
    """Nats by layout and seed."""
    nats = table.nats(split)
    return np.array([nats[layout] for layout in table.layouts])
