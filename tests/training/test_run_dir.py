"""What a phase's folder says of the machine and the program that it was trained by."""

from pathlib import Path

import pytest
import torch

from training.run_dir import environment, record_resume

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("aaa", "aaa", []),
        ("aaa", "bbb", ["program was aaa, is bbb"]),
        ("aaa", None, ["program was aaa, is unknown"]),
        (None, "aaa", ["program was unknown, is aaa"]),
        (None, None, []),
    ],
)
def test_a_resume_under_another_program_is_not_exact(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: str | None,
    after: str | None,
    said: list[str],
) -> None:
    """What `auto` stands for may differ, with the same settings in the identity."""
    monkeypatch.setattr("training.run_dir.commit", lambda: before)
    text = environment(CPU, {"micro_batches": 1})
    (tmp_path / "environment.json").write_text(text)
    monkeypatch.setattr("training.run_dir.commit", lambda: after)
    assert record_resume(tmp_path, CPU, 3, {"micro_batches": 1}) == said
