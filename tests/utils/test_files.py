"""Folders made whole."""

from pathlib import Path

import pytest

from utils.files import folder_made_whole


def test_a_folder_is_replaced_only_where_that_is_asked_for(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "old").touch()
    with pytest.raises(OSError, match="not empty"), folder_made_whole(folder) as work:
        (work / "new").touch()
    assert [path.name for path in tmp_path.rglob("*")] == ["model", "old"]
    with pytest.raises(ValueError, match="holds old, which is not of Parnas, so it is not repl"):
        folder_made_whole(folder, ["new"]).__enter__()
    assert [path.name for path in tmp_path.rglob("*")] == ["model", "old"]
    with folder_made_whole(folder, ["new", "old"]) as work:
        (work / "new").touch()
    assert [path.name for path in tmp_path.rglob("*")] == ["model", "new"]
