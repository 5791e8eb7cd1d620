"""Atomic writes, errors that name the file and the free space, JSON, CSV and npz files."""

import csv
import errno
import io
import json
import os
import shutil
import tokenize
import zipfile
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from stat import S_ISREG
from typing import Any

import numpy as np
from numpy.typing import NDArray

# No JSON file of a run is larger; what is, is not read.
MAX_JSON_BYTES = 2**26

Part = bytes | memoryview
# What is unpacked to more than this is no file of ours.
MAX_BYTES = 2**31
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# All that a damaged archive, a damaged stream or a damaged header of an array can end in.
READ_ERRORS = (
    OSError,
    ValueError,
    EOFError,
    KeyError,
    MemoryError,
    NotImplementedError,
    OverflowError,
    RuntimeError,
    TypeError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)


@contextmanager
def named(
    path: Path | str, needed_bytes: int | None = None, *, keep_names: bool = False
) -> Iterator[None]:
    """Give every OSError inside the name of what was written or read.

    `path` may be words for what has no name; `needed_bytes` are what a full disk should have had
    room for; with `keep_names` an error that names a file already stays as it is.
    """
    try:
        yield
    except OSError as error:
        if keep_names and error.filename is not None:
            raise
        message = error.strerror or str(error)
        if error.errno == errno.ENOSPC and isinstance(path, Path):
            message += _room(path.parent, needed_bytes)
        raise OSError(error.errno or errno.EIO, message, str(path)) from error


def _room(folder: Path, needed_bytes: int | None) -> str:
    try:
        free = _size(shutil.disk_usage(folder).free)
    except OSError:
        return ""
    return f" ({f'{_size(needed_bytes)} needed, ' if needed_bytes else ''}{free} free)"


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count >= 1e6 else f"{count:,} bytes"


def write_whole(
    path: Path, content: str | bytes | Sequence[Part], keep_old_as: Path | None = None
) -> Path:
    """Write a file under a temporary name, flush it to the disk and rename it into place.

    Where that fails, the old file stays as it was. `keep_old_as` is a name for the old file, which
    is else replaced. Returns the path.
    """
    data = content.encode() if isinstance(content, str) else content
    parts = [data] if isinstance(data, bytes) else data
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with named(path, sum(memoryview(part).nbytes for part in parts)):
        try:
            with temporary.open("wb") as file:
                file.writelines(parts)
                file.flush()
                os.fsync(file.fileno())
            # Between the two renames there is the old file under its new name, and that is whole.
            if keep_old_as is not None and path.exists():
                os.replace(path, keep_old_as)
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

    Raises:
        ValueError: an older one is no folder, or holds other names.
    """
    if replace and (why := why_not_ours(folder, replace)) is not None:
        raise ValueError(f"{folder}: {why}, so it is not replaced; move it away and start again")
    work, old = (folder.with_name(f".{folder.name}.{part}.tmp") for part in (os.getpid(), "old"))
    with named(folder):
        # A process of the same number may have been killed, as in a container all have number 1.
        for left in folder.parent.glob(f".{escape(folder.name)}.*.tmp") if replace else (work,):
            remove_folder(left)
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


def remove_temporary(folder: Path) -> None:
    """Remove what a killed process left half written in a folder."""
    for left in folder.glob(".*.tmp"):
        if left.is_dir() and not left.is_symlink():
            remove_folder(left)
        else:
            left.unlink(missing_ok=True)


def remove_folder(folder: Path) -> None:
    """Remove a folder with all that is in it, also where another process removes it meanwhile."""
    while folder.exists():
        # Whatever vanished was the other's; the rest of the folder may still be there.
        with suppress(FileNotFoundError):
            shutil.rmtree(folder)


def make_durable(path: Path) -> None:
    """Put a file's content, or a folder's renames, on the disk."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def check_is_file(path: Path) -> None:
    """Raise ValueError for a folder, a pipe, of which a reader would wait for ever, or a device."""
    if not S_ISREG(path.stat().st_mode):
        raise ValueError(f"{path}: is not a file")


def read_regular(path: Path, most_bytes: int, remedy: str) -> bytes:
    """The content of a regular file: a pipe would be waited for, a device read for ever.

    Raises:
        ValueError: it is no file, or larger; `remedy` says what to do.
    """
    status = path.stat()
    if not S_ISREG(status.st_mode) or status.st_size > most_bytes:
        raise ValueError(f"{path}: not a file of at most {most_bytes} bytes; {remedy}")
    return path.read_bytes()


def read_object(path: Path, remedy: str) -> dict[str, Any]:
    """The object in a JSON file; `remedy` says what to do where it is damaged.

    Raises:
        ValueError: it is no file, too large, not JSON, or JSON of something else.
    """
    text = read_regular(path, MAX_JSON_BYTES, remedy)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: damaged ({error}); {remedy}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path}: damaged (no JSON object); {remedy}")
    return content


def read_npz(content: bytes) -> dict[str, NDArray[Any]]:
    """The arrays of an npz file, none of objects; one of READ_ERRORS where it is damaged."""
    arrays = {}
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = archive.infolist()
        if sum(entry.file_size for entry in entries) > MAX_BYTES:
            raise ValueError(f"unpacks to more than {MAX_BYTES} bytes")
        for entry in entries:
            if entry.compress_type not in _METHODS:
                raise ValueError(f"{entry.filename!r:.40} is packed in an unknown way")
            # Whole first: the checksum stands at the end, and comes before any of it is believed.
            array = io.BytesIO(archive.read(entry))
            name = entry.filename.removesuffix(".npy")
            arrays[name] = np.lib.format.read_array(array, allow_pickle=False)
    return arrays


def csv_of(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """A header and one line for each row; what is None stays empty."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()
