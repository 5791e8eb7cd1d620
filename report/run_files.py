"""The files that a run leaves behind, read and checked, and which of their rows are shown.

Every reader raises a ValueError that names the file where it is damaged.

N recorded steps   L slots   C candidates
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from utils.files import MAX_BYTES, read_object, read_regular
from utils.pi import read_pi

CAVEATS = "caveats.json"
REMEDY = "repair or delete it"


@dataclass(frozen=True)
class Trajectory:
    """What a search recorded of pi, step by step."""

    step_N: np.ndarray
    pi_NLC: np.ndarray
    tau_N: np.ndarray
    labels: tuple[str, ...]
    alpha_start: int  # first step in which alpha moves

    @property
    def moves(self) -> bool:
        """Whether alpha's first step lies within what was recorded."""
        return self.alpha_start <= int(self.step_N[-1])


def read_trajectory(path: Path) -> Trajectory:
    """Read a `pi.npz`, whose arrays must fit together, and whose pi must sum to 1."""
    arrays = read_pi(path, "delete it")
    sum_NL = arrays["pi"].sum(axis=2)
    if not np.allclose(sum_NL, 1, atol=1e-3):
        worst = sum_NL.flat[np.argmax(~np.isclose(sum_NL, 1, atol=1e-3))]
        raise ValueError(f"{path}: a slot's pi sums to {worst:.4g}, not to 1; delete it")
    return Trajectory(
        step_N=arrays["step"],
        pi_NLC=arrays["pi"],
        tau_N=arrays["tau"],
        labels=tuple(str(label) for label in arrays["labels"]),
        alpha_start=int(arrays["alpha_start"]),
    )


def read_metrics(path: Path) -> pd.DataFrame:
    """Read a `metrics.jsonl`: objects with `kind` and `step`; a torn last line is left out."""
    lines = read_regular(path, MAX_BYTES, REMEDY).split(b"\n")
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
            raise ValueError(f"{path}:{number}: not JSON ({error}); {REMEDY}") from error
        if not isinstance(row, dict) or not {"kind", "step"} <= row.keys():
            raise ValueError(f"{path}:{number}: expected an object with kind and step")
        rows.append(row)
    return pd.DataFrame(rows, columns=None if rows else ["kind", "step"])


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file that holds one object."""
    if not path.is_file():
        raise ValueError(f"{path}: not a file; {REMEDY}")
    return read_object(path, REMEDY)


def read_caveats(path: Path) -> list[str]:
    """What a search's caveats.json says; none where there is no file."""
    return texts(path, "caveats", read_json(path).get("caveats")) if path.exists() else []


def read_joint_caveats(path: Path, seeds: Sequence[int]) -> list[str]:
    """What the caveats.json above the searches says of exactly these; none where it does not.

    Of one search nothing is said that was said before it was one of several.
    """
    content = read_json(path) if path.exists() else {"together": []}
    entries = content.get("together", [content])  # an older file is one entry itself
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError(f"{path}: together: expected a list of objects; {REMEDY}")
    by_seeds: dict[tuple[int, ...], list[str]] = {}
    for entry in entries:
        searches = entry.get("searches")
        if not isinstance(searches, list) or not all(isinstance(seed, int) for seed in searches):
            raise ValueError(f"{path}: searches: expected a list of seeds; {REMEDY}")
        by_seeds[tuple(sorted(searches))] = texts(path, "caveats", entry.get("caveats"))
    wanted = tuple(sorted(seeds))
    if len(wanted) == 1 and any(len(several) > 1 and wanted[0] in several for several in by_seeds):
        return []
    return by_seeds.get(wanted, [])


def texts(path: Path, key: str, value: Any) -> list[str]:
    """The list of texts that stands under a key of a JSON file."""
    if not isinstance(value, list) or not all(isinstance(line, str) for line in value):
        raise ValueError(f"{path}: {key}: expected a list of texts; {REMEDY}")
    return value


def seed_folders(folder: Path) -> list[Path]:
    """The `seed-N` folders inside `folder`, by seed."""
    numbers = {path: path.name.removeprefix("seed-") for path in folder.glob("seed-*")}
    seeds = [path for path, number in numbers.items() if path.is_dir() and number.isdecimal()]
    return sorted(seeds, key=lambda path: int(numbers[path]))


def thin(count: int, most: int) -> np.ndarray:
    """Indices of at most `most` of `count` rows, evenly spread, from the first to the last."""
    assert most >= 1, most
    if most == 1:  # linspace would keep the first
        return np.arange(count)[-1:]
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64))


def frame_rows(step_N: np.ndarray, alpha_start: int, most: int) -> np.ndarray:
    """Rows of an animation: the first one, then evenly from alpha's first step to the end."""
    # Before alpha's first step pi stands still.
    moving = np.flatnonzero(step_N >= alpha_start)
    if len(moving) == 0 or most < 2:
        return thin(len(step_N), most)
    rows = moving[thin(len(moving), most - 1)]
    return np.unique(np.concatenate([[0], rows]))
