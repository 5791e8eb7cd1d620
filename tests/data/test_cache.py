"""Cache folders are whole or not there, whoever else builds them and however a build ends."""

import errno
from pathlib import Path

import pytest

from data.cache import build_folder

KEY = {"a": 1}


def fill(folder: Path, text: str = "whole") -> dict[str, object]:
    (folder / "file").write_text(text)
    return {}


@pytest.fixture
def final(tmp_path: Path) -> Path:
    return tmp_path / "folder"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_that_appears_during_the_build_wins(final: Path) -> None:
    def slow(folder: Path) -> dict[str, object]:
        build_folder(final, KEY, lambda inner: fill(inner, "winner"))
        return fill(folder, "loser")

    build_folder(final, KEY, slow)
    assert (final / "file").read_text() == "winner"
    assert names(final) == ["file", "info.json"]
    assert names(final.parent) == ["folder"]


@pytest.mark.parametrize("file", ["train.txt", None])
def test_an_error_that_names_no_file_names_the_folder(final: Path, file: str | None) -> None:
    def unreadable(folder: Path) -> dict[str, object]:
        fill(folder)
        raise OSError(errno.EIO, "Input/output error", file)

    with pytest.raises(OSError, match="Input/output error") as caught:
        build_folder(final, KEY, unreadable)
    assert caught.value.filename == (file or str(final))
    assert names(final.parent) == []
