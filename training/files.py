"""Files that are whole or absent, and JSON of ours that may have been damaged since."""

import json
import os
from pathlib import Path
from stat import S_ISREG
from typing import Any

# No JSON file of a run is larger; what is, is not read.
MAX_JSON_BYTES = 2**26


def write_whole(path: Path, content: bytes | str) -> None:
    """Write a file under a temporary name, flush it to the disk and rename it into place.

    Raises:
        OSError: the disk is full or the folder is not writable; the old file stays as it was.
    """
    data = content.encode() if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        commit(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def commit(temporary: Path, path: Path) -> None:
    """Rename a finished temporary file into place and make the rename durable."""
    os.replace(temporary, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


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
