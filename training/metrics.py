"""metrics.jsonl: one JSON object a line, cut back to the checkpoint on a resume."""

import json
import os
from pathlib import Path
from typing import Any

from utils.files import append_line, named, write_whole


class MetricsFile:
    """metrics.jsonl: one JSON object a line, cut back to the checkpoint's step on a resume.

    `path` is None in processes beside the first one, which write nothing.
    """

    def __init__(self, path: Path | None, step: int) -> None:
        self.path = path
        if path is not None:
            kept = [row for row in read_rows(path) if row["step"] <= step]
            write_whole(path, "".join(json.dumps(row) + "\n" for row in kept))

    def append(self, row: dict[str, Any]) -> None:
        """Write one row and hand it to the system at once."""
        if self.path is not None:
            append_line(self.path, json.dumps(row))

    def sync(self) -> None:
        """Make the rows so far durable, before a checkpoint that relies on them."""
        if self.path is not None:
            with named(self.path), self.path.open("rb") as file:
                os.fsync(file.fileno())

    def rows(self) -> list[dict[str, Any]]:
        """All rows so far."""
        return [] if self.path is None else read_rows(self.path)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """All rows of a file that its run may still be writing; none where there is no file.

    A torn last line, left by a kill, is not one. ValueError: another line is no JSON object.
    """
    if not path.exists():
        return []
    *lines, _torn = path.read_bytes().split(b"\n")
    try:
        return [json.loads(line) for line in lines]
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
