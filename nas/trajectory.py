"""How the probabilities pi move: every step's true softmax(alpha), never a sample."""

import io
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from nas.plan import SearchPlan
from training.files import write_whole
from training.loop import Metrics
from training.state import TrainState

MOST_CSV_STEPS = 500
# What numpy and zipfile raise over a damaged file; RuntimeError where a flipped bit says encrypted.
_DAMAGED = (
    BadZipFile,
    EOFError,
    MemoryError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    zlib.error,
)


def softmax(alpha: NDArray[np.float32]) -> NDArray[np.float32]:
    """Softmax over the last axis."""
    shifted = np.exp(alpha - alpha.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def entropy_share(pi_LC: NDArray[np.float32]) -> float:
    """Mean entropy of pi over the slots as a part of the uniform one's."""
    if pi_LC.shape[-1] == 1:
        return 0.0
    safe = np.clip(pi_LC, 1e-30, None)
    entropy_L = -(pi_LC * np.log(safe)).sum(-1)
    return float(entropy_L.mean() / np.log(pi_LC.shape[-1]))


def margins(pi_LC: NDArray[np.float32]) -> NDArray[np.float32]:
    """Per slot: the likeliest candidate's probability less the second one's."""
    if pi_LC.shape[-1] == 1:
        return pi_LC[..., 0]
    ordered = np.sort(pi_LC, axis=-1)
    return ordered[..., -1] - ordered[..., -2]


@dataclass
class Trajectory:
    """alpha after each step, with that step's tau."""

    labels: Sequence[str]
    plan: SearchPlan
    alpha: list[NDArray[np.float32]] = field(default_factory=list)

    def __call__(self, state: TrainState, metrics: Metrics) -> None:
        """Record alpha after a step (a hook of the loop)."""
        assert len(self.alpha) == state.step - 1, (len(self.alpha), state.step)
        self.alpha.append(state.parameters["alpha"].detach().numpy().copy())

    def save(self, path: Path) -> None:
        """Write pi.npz whole."""
        count = len(self.alpha)
        alpha_NLC = np.stack(self.alpha)
        buffer = io.BytesIO()
        np.savez_compressed(
            buffer,
            step=np.arange(1, count + 1),
            pi=softmax(alpha_NLC),
            alpha=alpha_NLC,
            tau=np.array([self.plan.tau(step) for step in range(count)], dtype=np.float32),
            labels=np.array(self.labels),
            alpha_start=np.array(self.plan.alpha_start),
        )
        write_whole(path, buffer.getvalue())

    def resume(self, path: Path, state: TrainState) -> None:
        """Take the rows of an earlier pi.npz back, as far as the state's step.

        Raises:
            ValueError: the file is missing or damaged, or its rows are not those of this run.
        """
        try:
            arrays = load_pi(path)
            alpha_NLC = arrays.get("alpha", np.zeros(0))[: state.step]
            now_LC = state.parameters["alpha"].detach().numpy()
            if alpha_NLC.shape != (state.step, *now_LC.shape):
                raise ValueError(f"{path}: alpha has shape {alpha_NLC.shape}")
            if alpha_NLC.dtype != now_LC.dtype or not np.array_equal(alpha_NLC[-1], now_LC):
                raise ValueError(f"{path}: is of another run")
        except ValueError as error:
            raise ValueError(
                f"{error}; the checkpoint of step {state.step} relies on it: put the right "
                f"{path.name} back, or remove {path.parent} to search again"
            ) from error
        self.alpha = list(alpha_NLC)


def load_pi(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a pi.npz.

    Raises:
        ValueError: the file is missing or damaged.
        OSError: it cannot be read.
    """
    if not path.is_file():
        raise ValueError(f"{path}: not found; run search.py first")
    content = io.BytesIO(path.read_bytes())
    try:
        with np.load(content, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except _DAMAGED as error:
        raise ValueError(f"{path}: damaged ({error}); run search.py again") from error


def write_pi_csv(npz: Path, csv: Path) -> None:
    """The long table step, slot, candidate, pi; thinned to at most MOST_CSV_STEPS steps."""
    arrays = load_pi(npz)
    count = len(arrays["step"])
    rows = np.unique(np.linspace(0, count - 1, min(count, MOST_CSV_STEPS)).round().astype(int))
    lines = ["step,slot,candidate,pi"]
    for row in rows:
        for slot, pi_C in enumerate(arrays["pi"][row]):
            for label, value in zip(arrays["labels"], pi_C, strict=True):
                lines.append(f"{arrays['step'][row]},{slot},{label},{value:.6g}")
    write_whole(csv, "\n".join(lines) + "\n")
