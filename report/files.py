"""Writing a file whole or not at all."""

import os
from pathlib import Path


def write_whole(path: Path, content: bytes) -> Path:
    """Write under a temporary name in the same folder, then rename.

    A reader, or a run that is killed half way, sees the old file or the new one.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return path
