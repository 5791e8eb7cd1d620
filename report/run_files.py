"""The files that a run leaves behind, as figures and pages read them, thinned where long.

N recorded steps   L slots   C candidates
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from utils.files import read_object, read_rows
from utils.pi import load_pi, thin

CHOSEN = "architecture.json"


@dataclass(frozen=True)
class Trajectory:
    """Record of a search: pi and tau, step by step."""

    step_N: np.ndarray
    pi_NLC: np.ndarray
    tau_N: np.ndarray
    labels: tuple[str, ...]
    alpha_start: int  # first step in which alpha moves


def read_chosen(run_folder: Path) -> dict[str, Any]:
    """The chosen architecture; empty where there is none yet."""
    path = run_folder / CHOSEN
    return read_object(path) if path.exists() else {}


def read_trajectory(path: Path) -> Trajectory:
    """Read a `pi.npz`."""
    arrays = load_pi(path)
    return Trajectory(
        step_N=arrays["step"],
        pi_NLC=arrays["pi"],
        tau_N=arrays["tau"],
        labels=tuple(map(str, arrays["labels"])),
        alpha_start=int(arrays["alpha_start"]),
    )


def read_metrics(path: Path) -> pd.DataFrame:
    """Read a `metrics.jsonl`: objects with `kind` and `step`."""
    rows = read_rows(path)
    return pd.DataFrame(rows, columns=None if rows else ["kind", "step"])


def read_caveats(search_folder: Path) -> list[str]:
    """Read the caveats of a search; none where there is no file."""
    path = search_folder / "caveats.json"
    return list(read_object(path)["caveats"]) if path.exists() else []


def read_joint_caveats(searches: Iterable[Path]) -> list[str]:
    """Read the caveats of exactly these searches of a run together; none where there are none."""
    folders = list(searches)
    path = folders[0].parent / "caveats.json" if folders else Path()
    content = read_object(path) if path.is_file() else {}
    fits = content.get("searches") == sorted(map(seed_of, folders))
    return list(content["caveats"]) if fits else []


def seed_folders(folder: Path) -> list[Path]:
    """The `seed-N` folders inside `folder`, by seed."""
    return sorted(folder.glob("seed-*"), key=seed_of)


def seed_of(folder: Path) -> int:
    """The seed in the name of a folder."""
    return int(folder.name.removeprefix("seed-"))


def tight_layout(layout: str) -> str:
    """A layout of single letters without the spaces between them: 'a d i' is 'adi'."""
    letters = layout.split()
    return "".join(letters) if all(len(letter) == 1 for letter in letters) else layout


def frame_rows(step_N: np.ndarray, alpha_start: int, most: int) -> np.ndarray:
    """Rows of an animation: the first one, then evenly from alpha's first step to the end."""
    # Before alpha's first step pi stands still.
    moving = np.flatnonzero(step_N >= alpha_start)
    return np.union1d([0], moving[thin(len(moving), most - 1)]).astype(np.int64)
