"""Files that another process removes while this one looks at them."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from utils.files import remove_temporary


def test_temporary_files_that_another_process_removes_first_are_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (".a.1.tmp", ".b.2.tmp", "kept"):
        (tmp_path / name).write_text("half")
    glob = Path.glob

    def late(folder: Path, pattern: str) -> list[Path]:
        files = list(glob(folder, pattern))
        (tmp_path / ".a.1.tmp").unlink()
        return files

    monkeypatch.setattr(Path, "glob", late)
    remove_temporary(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_a_temporary_folder_is_gone_whoever_removes_its_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / ".model.1.tmp"
    for name in ("tokenizer", "weights"):
        (work / name).mkdir(parents=True)
    rmtree, calls = shutil.rmtree, []

    def late(folder: Path, *arguments: Any, **more: Any) -> None:
        calls.append(folder)
        if len(calls) == 1:
            rmtree(work / "weights")
            raise FileNotFoundError(2, "No such file or directory", str(work / "weights"))
        rmtree(folder, *arguments, **more)

    monkeypatch.setattr(shutil, "rmtree", late)
    remove_temporary(tmp_path)
    assert not list(tmp_path.iterdir())
    assert len(calls) == 2
