"""Atomic writes, errors that name the file and the free space, JSON, CSV and npz files."""

import csv
import errno
import hashlib
import io
import json
import os
import shutil
import time
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from glob import escape
from pathlib import Path
from typing import Any


@contextmanager
def named(path: Path | str, *, keep_names: bool = False) -> Iterator[None]:
    """Give every OSError inside the name of what was written or read.

    `path` may be words for what has no name; with `keep_names` an error that names a file already
    stays as it is.
    """
    try:
        yield
    except OSError as error:
        if keep_names and error.filename is not None:
            raise
        message = error.strerror or str(error)
        if error.errno == errno.ENOSPC and isinstance(path, Path):
            free = shutil.disk_usage(path.parent).free
            message += f" ({free / 1e6:,.1f} MB free)"
        raise OSError(error.errno or errno.EIO, message, str(path)) from error


def write_whole(path: Path, content: str | bytes) -> Path:
    """Write a file under a temporary name, flush it to the disk and rename it into place.

    Where that fails, the old file stays as it was. Returns the path.
    """
    data = content.encode() if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with named(path):
        try:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
            make_durable(path.parent)
        finally:
            temporary.unlink(missing_ok=True)
    return path


@contextmanager
def folder_made_whole(folder: Path, replace: Collection[str] = ()) -> Iterator[Path]:
    """An empty folder beside `folder`, which takes its name in the end, or leaves no trace.

    Without `replace` another one's files stay, and that is an error. With it, which is only for
    who holds a lock on the folder, an older one that holds these names alone gives way at once,
    and what a killed process left half written is removed.
    """
    if replace and (why := why_not_ours(folder, replace)) is not None:
        raise ValueError(f"{folder}: {why}, so it is not replaced; move it away and start again")
    # Not the process's number: in two containers that share a folder both may be number 1.
    parts = (uuid.uuid4().hex[:8], "old")
    work, old = (folder.with_name(f".{folder.name}.{part}.tmp") for part in parts)
    with named(folder, keep_names=True):
        if replace:
            remove_temporary(folder.parent, f".{escape(folder.name)}.*.tmp")
        work.mkdir(parents=True)
        try:
            yield work
            for path in work.rglob("*"):
                make_durable(path)
            if replace and folder.exists():
                # Not removed in its place: that takes time, in which a kill would leave no folder.
                os.replace(folder, old)
            # Fails unless there is none, or an empty one.
            os.replace(work, folder)
            make_durable(folder.parent)
        finally:
            for left in (work, old) if replace else (work,):
                shutil.rmtree(left, ignore_errors=True)


def why_not_ours(folder: Path, names: Collection[str]) -> str | None:
    """Why a folder may not be replaced or removed; None where all in it has one of these names."""
    if folder.is_symlink() or folder.is_file():
        return "is no folder"
    try:
        there = os.listdir(folder)
    except FileNotFoundError:
        return None
    other = min((name for name in there if name not in names), default=None)
    return None if other is None else f"holds {other}, which is not of Parnas"


def words_of(error: ValueError | OSError) -> str:
    """What an error says, in one line that begins with the file's name where it has one."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{os.fspath(error.filename)}: {error.strerror}"
    return " ".join(str(error).split())


def append_line(path: Path, line: str) -> None:
    """Add a line and hand it to the system at once; where that fails, it may end torn."""
    with named(path), path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def remove_temporary(folder: Path, pattern: str = ".*.tmp", older_s: float = 0.0) -> None:
    """Remove what a killed process left half written in a folder.

    Where others may write there too, only what is so much older than any work in hand.
    """
    for left in folder.glob(pattern):
        if older_s and (not left.exists() or time.time() - left.stat().st_mtime < older_s):
            continue
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)


def make_durable(path: Path) -> None:
    """Put a file's content, or a folder's renames, on the disk."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def sha256_of(path: Path) -> str:
    """Hash of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file of ours; ValueError, which names the file, where it is no JSON."""
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path}: damaged ({error})") from None
    return content


def read_rows(path: Path) -> list[dict[str, Any]]:
    """All rows of a file that its run may still be writing; none where there is no file.

    A torn last line, left by a kill, is not one.
    """
    if not path.exists():
        return []
    *lines, _torn = path.read_bytes().split(b"\n")
    return [json.loads(line) for line in lines]


def unlike(was: Any, now: Any, *place: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Places where two contents of JSON differ, each with both values in words."""
    if isinstance(was, list) and isinstance(now, list):
        was, now = dict(enumerate(was)), dict(enumerate(now))
    if isinstance(was, dict) and isinstance(now, dict):
        for key in {**was, **now}:
            yield from unlike(was.get(key, "absent"), now.get(key, "absent"), *place, str(key))
    elif repr(was) != repr(now):  # not by ==, for which nan is another nan
        yield place, f"was {was!s:.80}, is {now!s:.80}"


def csv_of(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """A header and one line for each row; what is None stays empty."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()
