"""What a person sees while a phase runs."""

from pathlib import Path
from typing import Any

import pytest

from training import console
from training.console import Screen


def row(step: int) -> dict[str, Any]:
    return {"step": step, "loss_nats": 1.0, "perplexity": 2.7, "tokens_per_s": 100.0}


@pytest.mark.parametrize(
    ("start", "step", "left"),
    [
        (0, 2, "0:36"),  # 2 of 20 done in four seconds
        (0, 4, "0:16"),
        (0, 6, "0:02"),
        (4, 5, "0:12"),  # after a resume: four seconds for the fifth step
        (4, 8, "0:00"),
    ],
)
def test_time_is_reckoned_by_the_work_that_is_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, start: int, step: int, left: str
) -> None:
    now = [100.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    shown = Screen(tmp_path / "train.log", title="search", start=start, work=[1.0] * 4 + [4.0] * 4)
    now[0] += 4.0
    shown.train_line(row(step))
    shown.close()
    assert (tmp_path / "train.log").read_text().endswith(f"  left {left}\n")


def test_what_blocks_say_stands_in_a_line_for_each_name(tmp_path: Path) -> None:
    shown = Screen(tmp_path / "train.log", title="retrain", start=0, work=[1.0] * 20)
    shown.block_lines(
        10,
        [
            {"slot": 0, "label": "spans", "numbers": {"keys": [1.0, 255.96], "load": [0.125]}},
            {"slot": 4, "label": "spans", "numbers": {"keys": [float(n) for n in range(17)]}},
        ],
    )
    shown.close()
    assert (tmp_path / "train.log").read_text().splitlines() == [
        "retrain     10/20  spans, keys: slot 0: 1 256; slot 4: 0 to 16 (17)",
        "retrain     10/20  spans, load: slot 0: 0.125",
    ]
