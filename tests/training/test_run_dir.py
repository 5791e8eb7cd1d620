"""A phase's folder: whose it is, and the machine and program that it was trained by."""

import json
import subprocess
from functools import partial
from pathlib import Path

import pytest
import torch

from training.run_dir import (
    claim,
    commit,
    environment,
    record_resume,
    source_digest,
)

CPU = torch.device("cpu")
PARTS = ("model", "nas")


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("aaa", "aaa", []),
        ("aaa", "bbb", ["program was aaa, is bbb"]),
        (None, "aaa", ["program was unknown, is aaa"]),
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


def test_a_changed_program_is_marked_in_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "run_dir.py"
    file.write_text("a")
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    for command in (["init", "-q"], ["add", "."], [*who, "commit", "-q", "-m", "a"]):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True)
    monkeypatch.setattr("training.run_dir.__file__", str(file))
    said = commit()
    assert said is not None
    assert len(said) == 40
    file.write_text("b")
    assert commit() == f"{said}-changed"


def test_the_digest_of_the_sources_tells_a_changed_moved_or_new_file(tmp_path: Path) -> None:
    def digest() -> str:
        return source_digest.__wrapped__(PARTS, tmp_path)

    for name in ("model/blocks/attention.py", "nas/search/plan.py", "report/page.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_text("1\n")
    seen = [digest()]
    for change in (
        lambda: (tmp_path / "model/blocks/attention.py").write_text("2\n"),
        lambda: (tmp_path / "nas/search/plan.py").rename(tmp_path / "nas/other.py"),
        lambda: (tmp_path / "nas/new.py").write_text(""),
    ):
        change()
        seen.append(digest())
    assert len(set(seen)) == len(seen)
    (tmp_path / "report/page.py").write_text("2\n")
    (tmp_path / "model/notes.txt").write_text("2\n")
    assert digest() == seen[-1]
    assert source_digest(PARTS) == source_digest.__wrapped__(PARTS) != digest()
    one_file = partial(source_digest.__wrapped__, ("model", "report/page.py"), tmp_path)
    before = one_file()
    (tmp_path / "report/page.py").write_text("3\n")
    assert one_file() != before
