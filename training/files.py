"""Files that are whole or absent, and errors that say which file and how much room there is."""

import errno
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

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
            shutil.rmtree(left)
        else:
            left.unlink()


def make_durable(path: Path) -> None:
    """Put a file's content, or a folder's renames, on the disk."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _room(folder: Path, needed_bytes: int | None) -> str:
    try:
        free = _size(shutil.disk_usage(folder).free)
    except OSError:
        return ""
    return f" ({f'{_size(needed_bytes)} needed, ' if needed_bytes else ''}{free} free)"


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count >= 1e6 else f"{count:,} bytes"
