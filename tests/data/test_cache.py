"""Cache folders are whole or not there, whoever else builds them and however a build ends."""

import errno
import fcntl
import os
import signal
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from data.cache import build_folder, damage

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
    assert damage(final, KEY) is None
    assert damage(final, {"a": 2}) == "info.json belongs to other text or another tokenizer"
    assert names(final.parent) == ["folder"]


def test_a_file_that_vanishes_between_two_looks_is_missing(
    final: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_folder(final, KEY, fill)
    (final / "file").unlink()
    # As another process leaves it that moves the folder away: what was just there is not.
    monkeypatch.setattr(Path, "is_file", lambda path: True)
    assert damage(final, KEY) == "file is missing"
    monkeypatch.undo()
    (final / "file").mkdir()
    assert damage(final, KEY) == "file is not a file"


def test_a_folder_that_is_moved_away_during_the_rename_is_built(
    final: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename, calls = os.rename, []

    def refused_once(source: Path, target: Path) -> None:
        calls.append(source)
        if len(calls) == 1:
            raise OSError(errno.ENOTEMPTY, "Directory not empty", str(target))
        rename(source, target)

    monkeypatch.setattr(os, "rename", refused_once)
    build_folder(final, KEY, fill)
    assert damage(final, KEY) is None


@pytest.mark.parametrize("file", ["train.txt", None])
def test_an_error_that_names_no_file_names_the_folder(final: Path, file: str | None) -> None:
    def unreadable(folder: Path) -> dict[str, object]:
        raise OSError(errno.EIO, "Input/output error", file)

    with pytest.raises(OSError, match="Input/output error") as caught:
        build_folder(final, KEY, unreadable)
    assert caught.value.filename == (file or str(final))
    assert names(final.parent) == []


class ForkedBuild:
    """A process that builds a folder and stops half way."""

    def __init__(self, final: Path) -> None:
        says, said = os.pipe()
        wait, self._go_on = os.pipe()
        self.number = os.fork()
        if self.number == 0:
            code = 1
            try:
                os.close(self._go_on)

                def slow(folder: Path) -> dict[str, object]:
                    os.write(said, folder.name.encode())
                    os.read(wait, 1)
                    return fill(folder)

                build_folder(final, KEY, slow)
                code = 0
            finally:
                os._exit(code)
        os.close(said)
        os.close(wait)
        self.work = final.with_name(os.read(says, 999).decode())
        os.close(says)

    def go_on(self) -> int:
        os.close(self._go_on)
        return os.waitstatus_to_exitcode(os.waitpid(self.number, 0)[1])

    def kill(self) -> None:
        os.kill(self.number, signal.SIGKILL)
        assert self.go_on() == -signal.SIGKILL


def test_the_next_build_removes_what_a_killed_one_left_and_nothing_of_a_living_one(
    final: Path,
) -> None:
    living, killed = ForkedBuild(final), ForkedBuild(final)
    killed.kill()
    final.with_name(f"{killed.work.name}.damaged").mkdir()
    another = final.with_name(".folder.2.17-0123abcd-0123abcd.lock")
    another.touch()
    assert killed.work.exists()
    build_folder(final, KEY, fill)
    left = ["folder", living.work.name, f"{living.work.name}.lock", another.name]
    assert names(final.parent) == sorted(left)
    assert living.go_on() == 0
    assert names(final.parent) == sorted(["folder", another.name])


def may_be_locked(path: Path) -> bool:
    """Whether another process gets a lock of the kind that shared folders know."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with path.open("r+") as file:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_build_is_locked_for_other_machines_whatever_else_this_process_builds(
    final: Path,
) -> None:
    free = []

    def slow(folder: Path) -> dict[str, object]:
        lock = folder.with_name(f"{folder.name}.lock")
        free.append(may_be_locked(lock))
        thread = Thread(target=build_folder, args=(final, KEY, fill))
        thread.start()
        thread.join()
        free.append(may_be_locked(lock))
        assert folder.exists()
        return fill(folder)

    build_folder(final, KEY, slow)
    assert free == [False, False]
    assert names(final.parent) == ["folder"]


def test_a_build_whose_name_is_taken_for_an_abandoned_one_takes_another(
    final: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the making of its lock and the locking."""
    lock, locked = fcntl.lockf, []

    def late(file: Any, how: int) -> None:
        locked.append(file.name)
        if len(locked) == 1:
            Path(file.name).unlink()
        lock(file, how)

    monkeypatch.setattr("data.cache.fcntl.lockf", late)
    build_folder(final, KEY, fill)
    assert len(set(locked)) == 2
    assert names(final.parent) == ["folder"]


def test_a_file_system_without_locks_loses_no_living_build(
    final: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(file: Any, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    def slow(folder: Path) -> dict[str, object]:
        build_folder(final, KEY, fill)
        return fill(folder)

    monkeypatch.setattr("data.cache.fcntl.lockf", none)
    build_folder(final, KEY, slow)
    assert names(final.parent) == ["folder"]
