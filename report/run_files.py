"""The files that a run leaves behind, read and checked, and what figures show of them.

A file that is damaged raises a ValueError that names it.

N recorded steps   L slots   C candidates
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from utils.files import READ_ERRORS, read_npz

CAVEATS = "caveats.json"
_KINDS = {"step": "iu", "pi": "f", "alpha": "f", "tau": "f", "labels": "U", "alpha_start": "iu"}


@dataclass(frozen=True)
class Trajectory:
    """What a search recorded of its architecture parameters."""

    step_N: np.ndarray
    pi_NLC: np.ndarray
    alpha_NLC: np.ndarray
    tau_N: np.ndarray
    labels: tuple[str, ...]
    alpha_start: int  # first step in which alpha moves

    @property
    def moves(self) -> bool:
        """Whether alpha's first step lies within what was recorded."""
        return len(self.step_N) > 0 and self.alpha_start <= int(self.step_N[-1])


def read_trajectory(path: Path) -> Trajectory:
    """Read a `pi.npz`.

    Raises:
        ValueError: the file is damaged, or its arrays do not fit together.
    """
    if not path.is_file():
        raise ValueError(f"{path}: not a file; delete it")
    content = path.read_bytes()
    try:
        arrays = read_npz(content)
    except READ_ERRORS as error:
        raise ValueError(f"{path}: not a readable npz file ({error}); delete it") from error
    missing = [key for key in _KINDS if key not in arrays]
    if missing:
        raise ValueError(f"{path}: lacks {', '.join(missing)}; delete it")
    for key, kinds in _KINDS.items():
        if arrays[key].dtype.kind not in kinds:
            raise ValueError(f"{path}: {key} has type {arrays[key].dtype}; delete it")
    if arrays["alpha_start"].size != 1 or arrays["step"].ndim != 1:
        raise ValueError(f"{path}: alpha_start or step is of another shape; delete it")
    trajectory = Trajectory(
        step_N=arrays["step"],
        pi_NLC=arrays["pi"],
        alpha_NLC=arrays["alpha"],
        tau_N=arrays["tau"],
        labels=tuple(str(label) for label in np.atleast_1d(arrays["labels"])),
        alpha_start=int(arrays["alpha_start"].reshape(-1)[0]),
    )
    _check(path, trajectory)
    return trajectory


def _check(path: Path, trajectory: Trajectory) -> None:
    steps, candidates = len(trajectory.step_N), len(trajectory.labels)
    shape = trajectory.pi_NLC.shape
    if len(shape) != 3 or shape[0] != steps or shape[1] < 1 or shape[2] != candidates:
        raise ValueError(
            f"{path}: pi has shape {shape}, but there are {steps} steps "
            f"and {candidates} labels; delete it"
        )
    if trajectory.alpha_NLC.shape != shape or trajectory.tau_N.shape != (steps,):
        raise ValueError(
            f"{path}: alpha {trajectory.alpha_NLC.shape} and tau {trajectory.tau_N.shape} "
            f"do not fit pi {shape}; delete it"
        )
    sum_NL = trajectory.pi_NLC.sum(axis=2)
    if not np.allclose(sum_NL, 1, atol=1e-3):  # NaN is not close to 1 either
        worst = sum_NL.flat[np.argmax(~np.isclose(sum_NL, 1, atol=1e-3))]
        raise ValueError(f"{path}: a slot's pi sums to {worst:.4g}, not to 1; delete it")


def read_metrics(path: Path) -> pd.DataFrame:
    """Read a `metrics.jsonl`; a torn last line is left out.

    Raises:
        ValueError: any other line is not an object with `kind` and `step`.
    """
    lines = path.read_bytes().split(b"\n")
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            # Only a writer that was stopped leaves a last line without its end.
            if number == len(lines):
                break
            raise ValueError(f"{path}:{number}: not JSON ({error}); repair or delete it") from error
        if not isinstance(row, dict) or not {"kind", "step"} <= row.keys():
            raise ValueError(f"{path}:{number}: expected an object with kind and step")
        rows.append(row)
    return pd.DataFrame(rows, columns=None if rows else ["kind", "step"])


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file that holds one object.

    Raises:
        ValueError: it does not.
    """
    if not path.is_file():
        raise ValueError(f"{path}: not a file; repair or delete it")
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not JSON ({error}); repair or delete it") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path}: expected an object, found {type(content).__name__}")
    return content


def read_caveats(path: Path) -> list[str]:
    """What a search's caveats.json says; none where there is no file.

    Raises:
        ValueError: the file is damaged.
    """
    return texts(path, "caveats", read_json(path).get("caveats")) if path.exists() else []


def read_joint_caveats(path: Path, seeds: Sequence[int]) -> list[str]:
    """What the caveats.json above the searches says of exactly these; none where it does not.

    Of one search nothing is said that was said before it was one of several.

    Args:
        path: the file.
        seeds: of the searches.

    Raises:
        ValueError: the file is damaged.
    """
    content = read_json(path) if path.exists() else {"together": []}
    entries = content.get("together", [content])  # an older file is one entry itself
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError(f"{path}: together: expected a list of objects; repair or delete it")
    said: dict[tuple[int, ...], list[str]] = {}
    for entry in entries:
        searches = entry.get("searches")
        if not isinstance(searches, list) or not all(isinstance(seed, int) for seed in searches):
            raise ValueError(f"{path}: searches: expected a list of seeds; repair or delete it")
        said[tuple(sorted(searches))] = texts(path, "caveats", entry.get("caveats"))
    wanted = tuple(sorted(seeds))
    if len(wanted) == 1 and any(len(each) > 1 and wanted[0] in each for each in said):
        return []
    return said.get(wanted, [])


def texts(path: Path, key: str, value: Any) -> list[str]:
    """A list of texts in a JSON file.

    Raises:
        ValueError: it is something else.
    """
    if not isinstance(value, list) or not all(isinstance(line, str) for line in value):
        raise ValueError(f"{path}: {key}: expected a list of texts; repair or delete it")
    return value


def seed_folders(folder: Path) -> list[Path]:
    """The `seed-N` folders inside `folder`, by seed."""
    found = [
        path
        for path in folder.glob("seed-*")
        if path.is_dir() and path.name.removeprefix("seed-").isdecimal()
    ]
    return sorted(found, key=lambda path: int(path.name.removeprefix("seed-")))


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
