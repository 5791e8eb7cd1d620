"""How much of the differences between trials a setting explains, and what chance reaches."""

import json
from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.stats import chi2, kruskal

from report.sweep.trials import TrialRow
from utils.pareto import different

FEWEST_TRIALS = 10
_MOST_LEVELS, _MOST_BINS, _PER_BIN = 6, 5, 5


def share_explained(
    finished: Sequence[TrialRow], key: str, index: int
) -> tuple[float, float] | None:
    """Share of the differences in one objective that a setting explains by itself, and by chance.

    The share is eta squared of the Kruskal-Wallis test (Tomczak and Tomczak, 2014), adjusted for
    the number of groups, over the trials in which the setting is active: ranks, so that a trial
    that went wrong does not outweigh all others; numbers of many values fall into up to 5 bins of
    equally many trials. A setting without effect stays below the second number in about 95% of
    cases. Trials of equal settings and values count once: they are one training. What two settings
    do only together is not seen, and trials that a sampler chose are not independent. None where
    fewer than 10 trials, or one value alone, tell nothing.

    Differs from `optuna.importance`: those need scikit-learn or, PED-ANOVA, look at the best tenth
    of the trials only, which is 3 of 30; they leave conditional settings out, and sum to 1 also
    over noise.
    """
    active = [row for row in finished if key in row.params]
    settings = [json.dumps(row.params, sort_keys=True) for row in active]
    active = [active[at] for at in different(settings, [row.values or [] for row in active])]
    if (trials := len(active)) < FEWEST_TRIALS:
        return None
    value_N = np.array([row.values[index] for row in active if row.values])
    values = [row.params[key] for row in active]
    many = len(set(map(json.dumps, values))) > _MOST_LEVELS
    if many and not any(isinstance(value, str | bool) or value is None for value in values):
        bins = int(np.clip(trials // _PER_BIN, 2, _MOST_BINS))
        group_N = pd.factorize(pd.qcut(values, bins, labels=False, duplicates="drop"))[0]
    else:
        group_N = pd.factorize(np.array(list(map(json.dumps, values))))[0]
    count = int(group_N.max()) + 1
    if count in (1, trials) or np.ptp(value_N) == 0:
        return None

    def share(of: float) -> float:
        return min(1.0, max(0.0, float(of - count + 1) / (trials - count)))

    statistic = kruskal(*(value_N[group_N == group] for group in range(count))).statistic
    return share(statistic), share(chi2.ppf(0.95, count - 1))
