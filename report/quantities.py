"""What the figures show, as plain arrays. N recorded steps, L slots, C candidates."""

import numpy as np


def thin(count: int, most: int) -> np.ndarray:
    """Indices of at most `most` of `count` rows, evenly spread, the first and the last among them.

    With `most` 1 it is the last.
    """
    assert most >= 1, most
    if most == 1:
        return np.arange(count)[-1:]
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64))


def entropy_share(pi_NLC: np.ndarray) -> np.ndarray:
    """Entropy of each slot's pi as a share of the uniform one: 1 undecided, 0 decided.

    One candidate leaves nothing to decide: 0.
    """
    pi_NLC = pi_NLC.astype(np.float64)
    candidates = pi_NLC.shape[2]
    if candidates == 1:
        return np.zeros(pi_NLC.shape[:2])
    # 0 ln 0 = 0: the 1 only stands where the factor is 0.
    log_NLC = np.log(np.where(pi_NLC > 0, pi_NLC, 1.0))
    return -(pi_NLC * log_NLC).sum(axis=2) / np.log(candidates)


def margin(pi_NLC: np.ndarray) -> np.ndarray:
    """How far each slot's likeliest candidate is ahead of its second one, in pi.

    One candidate is ahead of nothing by all of pi: 1.
    """
    pi_NLC = np.sort(pi_NLC.astype(np.float64), axis=2)
    if pi_NLC.shape[2] == 1:
        return pi_NLC[:, :, -1]
    return pi_NLC[:, :, -1] - pi_NLC[:, :, -2]


def frame_rows(step_N: np.ndarray, alpha_start: int, most: int) -> np.ndarray:
    """Rows of an animation: the first one, then evenly from alpha's first step to the end.

    Before alpha's first step pi stands still, and frames there would be wasted.
    """
    moving = np.flatnonzero(step_N >= alpha_start)
    if len(moving) == 0 or most < 2:
        return thin(len(step_N), most)
    rows = moving[thin(len(moving), most - 1)]
    return np.unique(np.concatenate([[0], rows]))
