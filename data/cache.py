"""Folders that are whole or absent, also when two processes build the same one at once."""

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISREG
from typing import Any

from utils.files import make_durable, named, read_object, write_whole

INFO = "info.json"
# What stands after the name of a folder that is being built.
_LOCK, _ASIDE = ".lock", ".damaged"
# Tells this process from one of the same number on another machine, or in another container.
_PROCESS = uuid.uuid4().hex[:8]


def default_cache() -> Path:
    """PARNAS_CACHE, or ~/.cache/parnas; ValueError where it names nobody's home folder."""
    folder = os.environ.get("PARNAS_CACHE") or "~/.cache/parnas"
    try:
        return Path(folder).expanduser()
    except RuntimeError:
        raise ValueError(
            f"{folder}: there is no such home folder; set PARNAS_CACHE to a folder for what is "
            "built"
        ) from None


@contextmanager
def cache_errors(cache: Path) -> Iterator[None]:
    """Let an OSError below the cache say how another cache is chosen."""
    try:
        yield
    except OSError as error:
        if error.filename is None or not Path(os.fsdecode(error.filename)).is_relative_to(cache):
            raise
        message = f"{error.strerror}; PARNAS_CACHE names another folder for what is built"
        raise OSError(error.errno, message, error.filename) from error


def key_hash(key: dict[str, Any]) -> str:
    """Hash of everything that decides a folder's content."""
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()


def damage(folder: Path, key: dict[str, Any]) -> str | None:
    """Say what is wrong with a folder by its sidecar and file sizes; None when it is whole."""
    try:
        info = read_object(folder / INFO, "build it again")
        if info["key"] != key:
            return f"{INFO} belongs to other text or another tokenizer"
        sizes = {name: entry["bytes"] for name, entry in info["files"].items()}
    except FileNotFoundError:
        return f"{INFO} is missing"
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"{INFO} is damaged"
    for name, size in sizes.items():
        # Another process may move the folder away meanwhile, so one look has to do.
        try:
            status = (folder / name).stat()
        except FileNotFoundError:
            return f"{name} is missing"
        if not S_ISREG(status.st_mode):
            return f"{name} is not a file"
        if status.st_size != size:
            return f"{name} has {status.st_size} bytes instead of {size}"
    return None


def build_folder(final: Path, key: dict[str, Any], fill: Callable[[Path], dict[str, Any]]) -> None:
    """Fill a temporary sibling and rename it into place; a whole folder already there stays.

    `key` is what decides the content; `fill` writes files into the folder it is given and returns
    more entries of the sidecar INFO, which holds them beside the key. Where a file cannot be
    written, what this build made is removed.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(final)
    with named(final, keep_names=True), _work_folder(final) as work:
        work.mkdir()
        try:
            entries = fill(work)
            files = {path.name: _describe(path) for path in sorted(work.iterdir())}
            content = json.dumps({"key": key, **entries, "files": files}, indent=1) + "\n"
            write_whole(work / INFO, content)
            _publish(work, final, key)
        finally:
            shutil.rmtree(work, ignore_errors=True)


@contextmanager
def _work_folder(final: Path) -> Iterator[Path]:
    """A name beside `final` for a folder that is being built, locked for as long as it is."""
    while True:
        work = final.with_name(f"{_prefix(final)}{uuid.uuid4().hex[:8]}")
        lock = work.with_name(work.name + _LOCK)
        with lock.open("x") as file:
            # Where the file system knows no locks, others cannot take it either.
            with suppress(OSError):
                # Not flock: this one reaches the other machines of a shared folder everywhere.
                fcntl.lockf(file, fcntl.LOCK_EX)
            # Another build may have taken it for an abandoned one before it was locked.
            if not lock.exists():
                continue
            try:
                yield work
            finally:
                lock.unlink(missing_ok=True)
            return


def _prefix(final: Path) -> str:
    # A forked process has the same _PROCESS and a number of its own.
    return f".{final.name}.{os.getpid()}-{_PROCESS}-"


def _remove_abandoned(final: Path) -> None:
    """Remove what killed builds of this name left, whose locks nobody holds any more."""
    name = re.compile(rf"\.{re.escape(final.name)}\.\d+(-[0-9a-f]{{8}}){{2}}\{_LOCK}")
    for lock in [path for path in final.parent.iterdir() if name.fullmatch(path.name)]:
        # Another thread's: this process would get its lock, and lose it for both by closing it.
        if lock.name.startswith(_prefix(final)):
            continue
        with suppress(OSError), lock.open("r+") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            work = lock.with_name(lock.name.removesuffix(_LOCK))
            for folder in (work, work.with_name(work.name + _ASIDE)):
                shutil.rmtree(folder, ignore_errors=True)
            lock.unlink(missing_ok=True)


def _publish(work: Path, final: Path, key: dict[str, Any]) -> None:
    """Rename into place. The loser of a race keeps the winner's folder."""
    while True:
        try:
            os.rename(work, final)
            return
        except OSError as error:
            # An existing folder refuses the rename; anything else is a real failure. Whether the
            # folder still stands is no question: another process may have moved it away since.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
        if damage(final, key) is None:
            return
        aside = work.with_name(work.name + _ASIDE)
        try:
            os.rename(final, aside)
        except FileNotFoundError:
            continue
        shutil.rmtree(aside, ignore_errors=True)


def _describe(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    # Before the rename, which must not outlive the content in a crash.
    make_durable(path)
    return {"bytes": path.stat().st_size, "sha256": sha256}
