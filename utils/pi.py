"""pi = softmax(alpha): read from pi.npz, and how sure it is.

N steps   L slots   C candidates
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special


def load_pi(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a search's pi.npz: step, pi, alpha, tau, labels and alpha_start.

    ValueError where it is missing.
    """
    if not path.is_file():
        others = sorted(other.parent.name for other in path.parent.parent.glob("seed-*/pi.npz"))
        searched = f", or take what was searched: {', '.join(others)}" if others else ""
        raise ValueError(
            f"{path}: not found; run search.py first{searched}; if the file was removed, remove "
            "its folder before"
        )
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


def thin(count: int, most: int) -> NDArray[np.int64]:
    """Indices of at most `most` of `count` rows, evenly spread, from the first to the last."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64))


def softmax(alpha: NDArray[Any]) -> NDArray[Any]:
    """Softmax over the last axis."""
    pi: NDArray[Any] = special.softmax(alpha, axis=-1)
    return pi


def entropy(pi: NDArray[Any]) -> NDArray[Any]:
    """Entropy in nats over the last axis."""
    # 0 log 0 = 0: clipped below the smallest pi that a float32 shows.
    nats: NDArray[Any] = -(pi * np.log(np.clip(pi, 1e-30, None))).sum(axis=-1)
    return nats


def entropy_share(pi_LC: NDArray[Any]) -> float:
    """Mean entropy of pi over the slots as a part of the uniform one's; 0 with one candidate."""
    candidates = pi_LC.shape[-1]
    return 0.0 if candidates == 1 else float(entropy(pi_LC).mean() / np.log(candidates))


def margins(pi: NDArray[Any]) -> NDArray[Any]:
    """Per slot: the likeliest candidate's probability less the second one's."""
    if pi.shape[-1] == 1:
        return pi[..., 0]
    ordered = np.sort(pi, axis=-1)
    return ordered[..., -1] - ordered[..., -2]
