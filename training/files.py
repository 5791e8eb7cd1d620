"""Files that are whole or absent, and errors that say which file and how much room there is."""

import errno
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISREG
from typing import Any

# No JSON file of a run is larger; what is, is not read.
MAX_JSON_BYTES = 2**26

Part = bytes | memoryview


@contextmanager
def named(path: Path | str, needed_bytes: int | None = None) -> Iterator[None]:
    """Give every OSError inside the name of what was written or read.

    Args:
        path: the file, or words for what has no name.
        needed_bytes: what a full disk should have had room for.
    """
    try:
        yield
    except OSError as error:
        words = error.strerror or str(error)
        if error.errno == errno.ENOSPC and isinstance(path, Path):
            words += _room(path.parent, needed_bytes)
        raise OSError(error.errno or errno.EIO, words, str(path)) from error


def write_whole(
    path: Path, content: str | bytes | Sequence[Part], keep_old_as: Path | None = None
) -> None:
    """Write a file under a temporary name, flush it to the disk and rename it into place.

    Args:
        path: the file.
        content: all of it, or its parts in order.
        keep_old_as: a name for the file that was there before; without it that one is replaced.

    Raises:
        OSError: the disk is full or the folder is not writable; the old file stays as it was.
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


def words_of(error: ValueError | OSError) -> str:
    """What an error says, in one line that begins with the file's name where it has one."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{os.fspath(error.filename)}: {error.strerror}"
    return " ".join(str(error).split())


def append_line(path: Path, line: str) -> None:
    """Add a line and hand it to the system at once.

    Raises:
        OSError: the disk is full; a torn line may stand at the end.
    """
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
    """Remove a folder with all that is in it, also where another process removes it meanwhile.

    Raises:
        OSError: a part of it cannot be removed.
    """
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


def read_object(path: Path, remedy: str) -> dict[str, Any]:
    """The object in a JSON file.

    Args:
        path: the file.
        remedy: what to do where it is damaged, for the message.

    Raises:
        ValueError: it is no file, too large, not JSON, or JSON of something else.
        OSError: it cannot be read.
    """
    status = path.stat()
    if not S_ISREG(status.st_mode) or status.st_size > MAX_JSON_BYTES:
        raise ValueError(f"{path}: not a file of at most {MAX_JSON_BYTES} bytes; {remedy}")
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: damaged ({error}); {remedy}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path}: damaged (no JSON object); {remedy}")
    return content


def _room(folder: Path, needed_bytes: int | None) -> str:
    try:
        free = _size(shutil.disk_usage(folder).free)
    except OSError:
        return ""
    return f" ({f'{_size(needed_bytes)} needed, ' if needed_bytes else ''}{free} free)"


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count >= 1e6 else f"{count:,} bytes"
