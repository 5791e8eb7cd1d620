"""Results that are expensive, kept by name in a file as soon as each is there."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from utils.files import append_line, write_whole


@dataclass
class Kept:
    """Results of one key by their names, in a file of JSON lines; none is ever changed.

    The file may hold lines of other keys too. `key` is all that a result depends on but its name.
    A kill may have torn the last line: it is cut off, and its result is made again.
    """

    path: Path
    key: str
    values: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        content = self.path.read_bytes() if self.path.exists() else b""
        if not content.endswith(b"\n") and content:
            write_whole(self.path, content := content[: content.rfind(b"\n") + 1])
        for row in map(json.loads, content.splitlines()):
            if row["key"] == self.key:
                self.values[row["name"]] = row["value"]

    def add(self, name: str, value: Any) -> None:
        """Keep a result, and append it to the file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        append_line(self.path, json.dumps({"key": self.key, "name": name, "value": value}))
        self.values[name] = value
