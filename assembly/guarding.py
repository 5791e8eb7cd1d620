"""What the guard says of a search that is done."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from assembly.lengths import search_steps
from assembly.searching import adds_nothing
from assembly.workbench import Workbench
from nas.search.diagnostics import alpha_path, warnings_of, watch
from nas.search.plan import SearchPlan
from nas.search.trajectory import load_pi


def guard_lines(bench: Workbench, trajectory: Path) -> list[str]:
    """What alpha's path shows, and warnings.

    Raises:
        ValueError, OSError: the trajectory is damaged or cannot be read.
    """
    experiment = bench.experiment
    # Only draws are held for longer where there is memory; alpha's steps are the same.
    plan = SearchPlan(experiment.search, search_steps(bench), 0, experiment.data.segment)
    path_NLC, rate_M = alpha_path(load_pi(trajectory)["alpha"], plan)
    nothing = adds_nothing(bench)
    found = watch(path_NLC, rate_M, list(nothing), list(nothing.values()))
    said = f"mean margin {found.mean_margin:.3f}, nothing added {found.nothing_share:.0%} of pi"
    return [said + _direction(found.directed_L), *warnings_of(found, plan)]


def _direction(directed_L: NDArray[np.float64]) -> str:
    judged_L = directed_L[~np.isnan(directed_L)]
    if not len(judged_L):
        return ", too few steps of alpha until it settled to say how directed they were"
    said = f", alpha's path directed with t = {np.median(judged_L):.1f} in the median slot"
    few = len(directed_L) - len(judged_L)
    return said + (f" ({few} of {len(directed_L)} settled in too few steps to tell)" if few else "")
