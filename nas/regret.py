"""What a search is worth on a table of layouts: its regret beside random search's at equal cost."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nas.layout_table import LayoutTable
from nas.verdict import paired_interval


@dataclass(frozen=True)
class Regrets:
    """Regrets in test nats per token: how far a chosen layout lies above the best of all.

    Attributes:
        mean: over the choices.
        half_width: of the mean's 95% interval; None for a single choice.
        each: one for each choice.
    """

    mean: float
    half_width: float | None
    each: tuple[float, ...]


def regret_of(table: LayoutTable, layouts: Sequence[str]) -> Regrets:
    """The regrets of layouts that searches chose.

    A layout's test nats are the mean over the table's seeds, which took no part in the choice.

    Raises:
        ValueError: a layout is not in the table.
    """
    mean = mean_nats(table, "test")
    if unknown := [layout for layout in layouts if layout not in mean]:
        raise ValueError(
            f"layout {unknown[0]!r} is not among the table's, which have {len(table.layouts[0])} "
            "slots; give letters without spaces"
        )
    best = min(mean.values())
    each = tuple(mean[layout] - best for layout in layouts)
    half = paired_interval(each)[1] if len(each) > 1 else None
    return Regrets(statistics.fmean(each), half, each)


def random_search(
    table: LayoutTable, trainings: int, *, replays: int, seed: int
) -> NDArray[np.float64]:
    """Regrets of random search: the best on validation of so many layouts trained once.

    In each replay the layouts are drawn without replacement and trained with one of the table's
    seeds; the regret is that of the other seeds' test nats, so that luck in the choice does not
    count as quality.

    Args:
        table: with two seeds or more.
        trainings: layouts that are trained.
        replays: how many searches.
        seed: of the draws.

    Raises:
        ValueError: more trainings than layouts, or one seed only.
    """
    valid_LS, test_LS = nats_by_seed(table, "valid"), nats_by_seed(table, "test")
    layouts, seeds = valid_LS.shape
    if not 1 <= trainings <= layouts or seeds < 2:
        raise ValueError(
            f"random search: {trainings} trainings of {layouts} layouts with {seeds} seeds; "
            "give 1 to all layouts, and a table with 2 seeds or more"
        )
    generator = np.random.default_rng(seed)
    best = test_LS.mean(axis=1).min()
    found = np.empty(replays)
    for replay in range(replays):
        own = int(generator.integers(seeds))
        drawn = generator.choice(layouts, size=trainings, replace=False)
        chosen = drawn[valid_LS[drawn, own].argmin()]
        found[replay] = np.delete(test_LS[chosen], own).mean() - best
    return found


@dataclass(frozen=True)
class NoiseCeiling:
    """How far two trainings of the same layouts agree: no score can rank them better than that.

    Attributes:
        tau: Kendall's tau-b between the test nats of two seeds, mean over pairs of seeds.
        regret: of the layout with the lowest validation of one seed, on the others; mean.
        deviation: of one training's test nats, pooled over layouts.
        spread: standard deviation of the layouts' mean test nats.
    """

    tau: float
    regret: float
    deviation: float
    spread: float


def noise_ceiling(table: LayoutTable) -> NoiseCeiling:
    """The agreement of the table's seeds.

    Raises:
        ValueError: it has one seed only.
    """
    valid_LS, test_LS = nats_by_seed(table, "valid"), nats_by_seed(table, "test")
    seeds = test_LS.shape[1]
    if seeds < 2:
        raise ValueError(f"noise ceiling: needs 2 seeds or more, the table has {seeds}")
    pairs = [(one, two) for one in range(seeds) for two in range(one)]
    best = test_LS.mean(axis=1).min()
    regrets = [
        np.delete(test_LS[valid_LS[:, own].argmin()], own).mean() - best for own in range(seeds)
    ]
    return NoiseCeiling(
        tau=statistics.fmean(kendall_tau(test_LS[:, one], test_LS[:, two]) for one, two in pairs),
        regret=float(np.mean(regrets)),
        deviation=table.pooled_deviation("test"),
        spread=float(test_LS.mean(axis=1).std(ddof=1)),
    )


def kendall_tau(x_N: NDArray[np.float64], y_N: NDArray[np.float64]) -> float:
    """Kendall's tau-b; nan where one side is constant."""
    sign_x, sign_y = (np.sign(v[:, None] - v[None, :]) for v in (x_N, y_N))
    norm = math.sqrt(float((sign_x**2).sum()) * float((sign_y**2).sum()))
    return float((sign_x * sign_y).sum()) / norm if norm else math.nan


def mean_nats(table: LayoutTable, split: str) -> Mapping[str, float]:
    """Each layout's mean over seeds."""
    return {layout: statistics.fmean(found) for layout, found in table.nats(split).items()}


def nats_by_seed(table: LayoutTable, split: str) -> NDArray[np.float64]:
    """Nats by layout and seed.

    Raises:
        ValueError: a layout lacks a seed.
    """
    found = table.nats(split)
    if len({len(values) for values in found.values()}) > 1:
        raise ValueError("the table is not whole: layouts have different numbers of seeds")
    return np.array([found[layout] for layout in table.layouts])
