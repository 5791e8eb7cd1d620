"""pi = softmax(alpha): read from pi.npz with every check, and how sure it is.

N steps   L slots   C candidates
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from utils.files import MAX_BYTES, READ_ERRORS, read_npz, read_regular

PEAK_LRS = "alpha_peak_lrs"  # not in a pi.npz of older versions
_KINDS = {"step": "iu", "pi": "f", "alpha": "f", "tau": "f", "labels": "U", "alpha_start": "iu"}


def read_pi(path: Path, remedy: str) -> dict[str, NDArray[Any]]:
    """The arrays of a pi.npz: step, pi, alpha, tau, labels, alpha_start, alpha_peak_lrs.

    Raises:
        ValueError: the file is damaged, or its arrays do not fit; `remedy` says what to do.
    """
    content = read_regular(path, MAX_BYTES, remedy)
    try:
        arrays = read_npz(content)
        _check(arrays)
    except READ_ERRORS as error:
        raise ValueError(f"{path}: damaged ({error}); {remedy}") from error
    return arrays


def _check(arrays: dict[str, NDArray[Any]]) -> None:
    if missing := _KINDS.keys() - arrays.keys():
        raise ValueError(f"lacks {', '.join(sorted(missing))}")
    for name, kinds in _KINDS.items():
        if arrays[name].dtype.kind not in kinds:
            raise ValueError(f"{name} has type {arrays[name].dtype}")
    shape = arrays["alpha"].shape
    if len(shape) != 3 or 0 in shape:
        raise ValueError(f"alpha has shape {shape}")
    steps, _, candidates = shape
    shapes = {"step": (steps,), "pi": shape, "tau": (steps,), "labels": (candidates,)}
    for name, expected in (shapes | {"alpha_start": ()}).items():
        if arrays[name].shape != expected:
            raise ValueError(f"{name} has shape {arrays[name].shape}, alpha {shape}")
    if PEAK_LRS in arrays and (arrays[PEAK_LRS].dtype.kind != "f" or arrays[PEAK_LRS].ndim != 1):
        raise ValueError(f"{PEAK_LRS} has type {arrays[PEAK_LRS].dtype} or another shape")
    if not np.array_equal(arrays["step"], np.arange(1, steps + 1)):
        raise ValueError("step does not count from 1")
    for name in sorted({"alpha", "pi", "tau", PEAK_LRS} & arrays.keys()):
        if not np.isfinite(arrays[name]).all():
            raise ValueError(f"{name} holds nan or inf")


def softmax(alpha: NDArray[Any]) -> NDArray[Any]:
    """Softmax over the last axis."""
    shifted = np.exp(alpha - alpha.max(axis=-1, keepdims=True))
    pi: NDArray[Any] = shifted / shifted.sum(axis=-1, keepdims=True)
    return pi


def log_softmax(alpha: NDArray[Any]) -> NDArray[Any]:
    """Logarithm of the softmax over the last axis."""
    shifted = alpha - alpha.max(axis=-1, keepdims=True)
    log_pi: NDArray[Any] = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return log_pi


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
