"""A phase's folder: whose it is, and the machine and program that it was trained by."""

import os
import subprocess
from pathlib import Path

import pytest
import torch

from training.run_dir import commit, environment, record_resume, source_digest

CPU = torch.device("cpu")


def test_a_resume_under_another_program_is_not_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `auto` stands for may differ, with the same settings in the identity."""
    programs = iter(("aaa", "aaa", "bbb"))
    monkeypatch.setattr("training.run_dir.commit", lambda: next(programs))
    (tmp_path / "environment.json").write_text(environment(CPU, {"micro_batches": 1}))
    resumes = [record_resume(tmp_path, CPU, 3, {"micro_batches": 1}) for _ in range(2)]
    assert resumes == [[], ["program was aaa, is bbb"]]


def test_a_changed_program_is_marked_in_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "run_dir.py"
    file.write_text("a")
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    for command in (["init", "-q"], ["add", "."], [*who, "commit", "-q", "-m", "a"]):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True)
    monkeypatch.setattr("training.run_dir.__file__", str(file))
    index = (tmp_path / ".git/index").read_bytes()
    os.utime(file, (1e9, 1e9))  # of another age, the same content: git would note that, by a lock
    said = commit()
    assert said is not None
    assert (tmp_path / ".git/index").read_bytes() == index
    assert len(said) == 40
    file.write_text("b")
    assert commit() == f"{said}-changed"


def test_the_digest_of_the_sources_tells_a_changed_moved_or_new_file(tmp_path: Path) -> None:
    def digest() -> str:
        return source_digest.__wrapped__(("model", "nas"), tmp_path)

    for name in ("model/blocks/attention.py", "nas/search/plan.py", "report/page.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_text("1\n")
    seen = [digest()]
    (tmp_path / "model/blocks/attention.py").write_text("2\n")
    seen.append(digest())
    (tmp_path / "nas/search/plan.py").rename(tmp_path / "nas/other.py")
    seen.append(digest())
    (tmp_path / "nas/new.py").write_text("")
    seen.append(digest())
    assert len(set(seen)) == len(seen)
    (tmp_path / "report/page.py").write_text("2\n")
    (tmp_path / "model/notes.txt").write_text("2\n")
    assert digest() == seen[-1]
