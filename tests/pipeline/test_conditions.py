"""What is said of trainings that ran on unlike machines or programs."""

from pathlib import Path
from typing import Any

import pytest

from pipeline.compare import unlike_conditions
from tests.runs import write_json

COMMITS = ["0" * 40, "f" * 40]
HERE = {"commit": COMMITS[0], "torch": "2.13.0", "packages": {"numpy": "2.0"}, "device": "cpu",
        "threads": 2, "processor": "p", "micro_batches": 1, "attention": "auto", "ranks": 1,
        "compile": False}  # fmt: skip
HEAD = "not trained under equal conditions: "


def said(folder: Path, **environments: list[dict[str, Any]]) -> str:
    """Of rows whose seeds ran so, beside what is as here."""
    trainings = {name: [folder / name / f"seed-{at}" for at in range(len(each))]
                 for name, each in environments.items()}  # fmt: skip
    for name, each in environments.items():
        for path, changed in zip(trainings[name], each, strict=True):
            write_json(path / "environment.json", HERE | changed)
    return unlike_conditions(trainings)


def test_of_equal_conditions_nothing_is_said(tmp_path: Path) -> None:
    other = {"command": ["x"], "cores": 9}
    resumed = {"resumed": [{"step": 5, "threads": 2}]}
    assert said(tmp_path, a=[other, {}], b=[{}, resumed]) == ""


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"torch": "1.13.0"}, "torch 1.13.0 (b seed-0), 2.13.0 (the others)"),
        ({"device": "NVIDIA H100"}, "device NVIDIA H100 (b seed-0), cpu (the others)"),
        ({"threads": 64}, "threads 64 (b seed-0), 2 (the others)"),
        ({"processor": "q"}, "processor q (b seed-0), p (the others)"),
        ({"ranks": 2}, "ranks 2 (b seed-0), 1 (the others)"),
        ({"micro_batches": 4}, "micro_batches 4 (b seed-0), 1 (the others)"),
        ({"attention": "fused"}, "attention fused (b seed-0), auto (the others)"),
        ({"compile": True}, "compile True (b seed-0), False (the others)"),
        ({"packages": {"numpy": "1.26"}}, "numpy 1.26 (b seed-0), 2.0 (the others)"),
        ({"commit": None}, f"program unknown (b seed-0), {'0' * 12} (the others)"),
        ({"commit": f"{COMMITS[0]}-changed"}, f"program {'0' * 12}-changed (b seed-0), {'0' * 12} "
         "(the others)"),
        ({"resumed": [{"step": 5, "threads": 1}, {"step": 6, "threads": 2}]},
         "threads 2 then 1 (b seed-0), 2 (the others)"),
    ],
)  # fmt: skip
def test_what_differs_is_named_with_the_row(
    tmp_path: Path, changed: dict[str, Any], words: str
) -> None:
    assert said(tmp_path, a=[{}], b=[changed], c=[{}]) == f"{HEAD}{words}"


def test_seeds_of_a_row_are_told_apart(tmp_path: Path) -> None:
    other = {"commit": COMMITS[1], "threads": 1}
    assert said(tmp_path, a=[{}, other], b=[{}, {}]) == (
        f"{HEAD}program {'f' * 12} (a seed-1), {'0' * 12} (the others); threads 1 (a seed-1), 2 "
        "(the others)"
    )
