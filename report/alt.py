"""What a figure of a search shows, in words for those who do not see it.

N recorded steps   L slots   C candidates
"""

import numpy as np
import pandas as pd

from report.curves import NETS, perplexities
from report.run_files import Trajectory
from report.slider import grid_words
from utils.pi import entropy
from utils.pi import margins as pi_margins


def alt_of(name: str, trajectory: Trajectory | None, metrics: pd.DataFrame | None) -> str:
    """The words for a figure by its file's name; what is not known of it stays out."""
    if name == "curves.png":
        return curves_words(metrics)
    if trajectory is None:
        return _KINDS[name]
    last = int(trajectory.step_N[-1])
    steps = f"over {last} steps"
    if name == "schedule.png":
        return f"Three line charts {steps}: {_schedule_words(trajectory)}"
    end = grid_words(trajectory.pi_NLC[-1], trajectory.labels, last)
    return (
        f"{_KINDS[name]} {steps}. At the end: {end}" if "pi" in name else f"{_KINDS[name]} {steps}"
    )


_KINDS = {
    "pi_final.png": "Heat map of the last pi, candidates by slots,",
    "pi.gif": "Animated heat map of pi, candidates by slots,",
    "pi_lines.png": "Line charts of pi, a panel for each slot and a line for each candidate,",
    "pi_over_time.png": "Heat maps of pi, a panel for each candidate, slots by steps,",
    "schedule.png": "Line charts of tau, entropy and margin",
    "cost.png": "Line chart of the expected cost of layouts beside the target",
    "blocks.png": "Line charts of what blocks say of themselves, a panel for each slot,",
}


def _schedule_words(trajectory: Trajectory) -> str:
    ends_2LC = trajectory.pi_NLC[[0, -1]].astype(np.float64)
    share_2 = (entropy(ends_2LC) / np.log(max(ends_2LC.shape[2], 2))).mean(axis=1)
    margin_2 = pi_margins(ends_2LC).mean(axis=1)
    tau_2 = trajectory.tau_N[[0, -1]]
    parts = [
        f"{name} from {first:.2f} to {last:.2f}"
        for name, (first, last) in (
            ("tau", tau_2), ("mean entropy of pi, as a share of the uniform one,", share_2),
            ("mean lead of the likeliest candidate", margin_2),
        )
    ]  # fmt: skip
    return ", ".join(parts)


def curves_words(metrics: pd.DataFrame | None) -> str:
    """The perplexities that the curves of a training end at."""
    words = "Line chart of perplexity over the steps"
    if metrics is None:
        return words
    ends = []
    for net, (label, _, _) in NETS.items():
        rows = perplexities(metrics, "valid", net)
        if len(rows):
            ends.append(f"{label} ends at {float(rows['perplexity'].iloc[-1]):.4g}")
    return f"{words}: {', '.join(ends)}" if ends else words
