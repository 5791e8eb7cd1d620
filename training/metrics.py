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
            lines = [line for line in _whole_lines(path) if json.loads(line)["step"] <= step]
            write_whole(path, "".join(lines))

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
    """All rows of a file that its run may still be writing; ValueError for a damaged line."""
    return [json.loads(line) for line in _whole_lines(path)]


def _whole_lines(path: Path) -> list[str]:
    """The lines of the file; a torn last line, left by a kill, is not one."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    lines = content.splitlines(keepends=True)
    if lines and not lines[-1].endswith(b"\n"):
        lines.pop()
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
            whole = isinstance(row["step"], int) and isinstance(row["kind"], str)
        except (ValueError, TypeError, KeyError, RecursionError):
            whole = False
        if not whole:
            raise ValueError(
                f"{path}:{number}: damaged line; repair it, or delete the file: the run then goes "
                "on, and only what the figures show of its past is lost"
            )
    return [line.decode() for line in lines]
