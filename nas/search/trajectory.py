"""How the probabilities pi move: every step's true softmax(alpha), never a sample."""

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nas.search.plan import SearchPlan
from training.state import Metrics, TrainState
from utils.files import write_whole
from utils.pi import load_pi, softmax, thin

MOST_CSV_STEPS = 500


@dataclass
class Trajectory:
    """alpha after each step so far, with that step's tau; `labels` are the candidates'."""

    labels: Sequence[str]
    plan: SearchPlan
    alpha: list[NDArray[np.float32]] = field(default_factory=list)
    tau: list[np.float32] = field(default_factory=list)

    def __call__(self, state: TrainState, metrics: Metrics) -> None:
        """Record alpha after a step (a hook of the loop)."""
        assert len(self.alpha) == state.step - 1, (len(self.alpha), state.step)
        self.alpha.append(state.parameters["alpha"].detach().numpy().copy())
        self.tau.append(np.float32(self.plan.tau(state.step - 1)))

    def save(self, path: Path) -> None:
        """Write pi.npz whole."""
        alpha_NLC = np.stack(self.alpha)
        buffer = io.BytesIO()
        np.savez_compressed(
            buffer,
            step=np.arange(1, len(self.alpha) + 1),
            pi=softmax(alpha_NLC),
            alpha=alpha_NLC,
            tau=np.array(self.tau, dtype=np.float32),
            labels=np.array(self.labels),
            alpha_start=np.array(self.plan.alpha_start),
        )
        write_whole(path, buffer.getvalue())

    def resume(self, path: Path, state: TrainState) -> None:
        """Take the rows of an earlier pi.npz back, as far as the state's step.

        A kill between pi.npz and its checkpoint leaves rows beyond that step; they are dropped.
        ValueError: the file is missing, or its rows are not those of this run.
        """
        arrays = load_pi(path)
        alpha_NLC, tau_N = (arrays[name][: state.step] for name in ("alpha", "tau"))
        now_LC = state.parameters["alpha"].detach().numpy()
        if not np.array_equal(alpha_NLC[-1], now_LC):
            raise ValueError(
                f"{path}: is of another run; put the right one back, or remove {path.parent} to "
                "search again"
            )
        self.alpha, self.tau = list(alpha_NLC), list(tau_N)


def write_pi_csv(npz: Path, csv: Path) -> None:
    """The long table step, block, candidate, pi; thinned to at most MOST_CSV_STEPS steps."""
    arrays = load_pi(npz)
    lines = ["step,block,candidate,pi"]
    for row in thin(len(arrays["step"]), MOST_CSV_STEPS):
        for slot, pi_C in enumerate(arrays["pi"][row]):
            for label, value in zip(arrays["labels"], pi_C, strict=True):
                lines.append(f"{arrays['step'][row]},{slot},{label},{value:.6g}")
    write_whole(csv, "\n".join(lines) + "\n")
