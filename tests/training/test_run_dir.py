"""A phase's folder: whose it is, and the machine and program that it was trained by."""

import json
from pathlib import Path

import pytest
import torch

from training.run_dir import claim, environment, record_resume

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


def test_a_folder_belongs_to_one_identity(tmp_path: Path) -> None:
    identity = {"search": {"steps": 5, "tau": {"end": None}}, "corpus": "abc"}
    folder = tmp_path / "phase"
    for text in ("a: 1\n", "other\n"):
        claim(folder, identity, {"experiment.yaml": text})
    assert (folder / "experiment.yaml").read_text() == "a: 1\n"
    changed = {**identity, "search": {"steps": 6, "tau": {"end": 0.1}}}
    with pytest.raises(ValueError, match=r"search\.steps is 5 there and 6 here"):
        claim(folder, changed, {})
    assert json.loads((folder / "identity.json").read_text()) == identity
