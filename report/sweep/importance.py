"""Importances of a sweep's settings, and what chance reaches."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import chi2, kruskal

from report.sweep.trials import Row, done, keys_of, value_text
from utils.pareto import different

FEWEST_TRIALS = 10
_MOST_LEVELS, _MOST_BINS, _PER_BIN = 6, 5, 5


@dataclass(frozen=True)
class Importance:
    """Share that one setting explains by itself, 0 to 1; None where too few trials tell."""

    key: str
    share: float | None
    chance: float  # what a setting without effect stays below in about 95% of cases
    trials: int  # in which the setting is active
    conditional: bool  # active in some trials only


def importances(rows: Sequence[Row], index: int) -> list[Importance]:
    """Each setting's share of the differences in one objective, the largest first.

    The share is eta squared of the Kruskal-Wallis test (Tomczak and Tomczak, 2014), adjusted for
    the number of groups, over the trials in which the setting is active: ranks, so that a trial
    that went wrong does not outweigh all others; numbers of many values fall into up to 5 bins of
    equally many trials. Trials of equal settings and values count once: they are one training. What
    two settings do only together is not seen, and trials that a sampler chose are not independent.
    With fewer than 10 different trials nothing is computed.

    Differs from `optuna.importance`: those need scikit-learn or, PED-ANOVA, look at the best tenth
    of the trials only, which is 3 of 30; they leave conditional settings out, and sum to 1 also
    over noise.
    """
    finished = sorted(done(rows), key=lambda row: row.number)
    settings = [json.dumps(row.params, sort_keys=True) for row in finished]
    once = different(settings, [row.values or [] for row in finished])
    if len(once) < FEWEST_TRIALS:
        return []
    rows = [finished[place] for place in once]
    ones = [_importance(rows, key, index) for key in keys_of(rows)]
    return sorted(ones, key=lambda one: (one.share is None, -(one.share or 0.0), one.key))


def _importance(finished: Sequence[Row], key: str, index: int) -> Importance:
    active = [row for row in finished if key in row.params]
    value_N = np.array([row.values[index] for row in active if row.values])
    group_N = groups([row.params[key] for row in active])
    conditional, trials, count = len(active) < len(finished), len(active), int(group_N.max()) + 1
    if trials < FEWEST_TRIALS or count == 1 or np.ptp(value_N) == 0:
        return Importance(key, None, 0.0, trials, conditional)
    if count == trials:  # each value once: nothing is seen within groups
        return Importance(key, 0.0, 0.0, trials, conditional)

    def share(of: float) -> float:
        return max(0.0, float(of - count + 1) / (trials - count))

    statistic = kruskal(*(value_N[group_N == group] for group in range(count))).statistic
    chance = min(1.0, share(chi2.ppf(0.95, count - 1)))
    return Importance(key, share(statistic), chance, trials, conditional)


def groups(values: Sequence[Any]) -> np.ndarray:
    """A group 0, 1, ... for each value: the value itself, or a bin of numbers near each other."""
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        if len(set(values)) <= _MOST_LEVELS:
            return np.unique(values, return_inverse=True)[1]
        bins = int(np.clip(len(values) // _PER_BIN, 2, _MOST_BINS))
        bin_N = pd.qcut(values, bins, labels=False, duplicates="drop")
        return np.unique(bin_N, return_inverse=True)[1]
    return np.unique([value_text(value) for value in values], return_inverse=True)[1]
