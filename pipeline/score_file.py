"""A file of layouts' scores by one SuperNet: a line for each, added as it comes."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from nas.statistics.paired_scores import Score
from utils.files import append_line

Labels = tuple[str, ...]


@dataclass
class ScoreCache:
    """The scores of one SuperNet on one text; a line is added for each, and none is ever changed.

    The file at `path` may hold lines of other keys too. `key` is the hash of all that a score
    depends on but the layout.
    """

    path: Path
    key: str
    scores: dict[Labels, Score] = field(default_factory=dict)

    def add(self, labels: Labels, score: Score) -> None:
        """Keep a score, and append it to the file."""
        row = {
            "key": self.key,
            "layout": list(labels),
            "nats": score.nats_P.tolist(),
            "tokens": score.tokens_P.tolist(),
        }
        append_line(self.path, json.dumps(row | {"crc32": _checksum(row)}))
        self.scores[labels] = score


def open_scores(path: Path, key: str) -> ScoreCache:
    """The scores of a key that a file holds; an empty cache where there is no file.

    Lines whose checksum does not hold are left out, so what they said is scored again: a kill may
    have torn the last one, which then gets its line end.

    Raises:
        ValueError: something else than a file is there.
    """
    if not path.exists():
        return ScoreCache(path, key)
    if not path.is_file():
        raise ValueError(f"{path}: is not a file; remove it")
    content = path.read_bytes()
    if content and not content.endswith(b"\n"):
        append_line(path, "")
    return ScoreCache(path, key, dict(_scores_of(content, key)))


def _scores_of(content: bytes, key: str) -> Iterator[tuple[Labels, Score]]:
    for line in content.splitlines():
        try:
            row = json.loads(line)
            if row.pop("crc32") == _checksum(row) and row["key"] == key:
                nats_P, tokens_P = (np.array(row[name], np.float64) for name in ("nats", "tokens"))
                yield tuple(row["layout"]), Score(nats_P, tokens_P)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            continue


def _checksum(row: Mapping[str, Any]) -> int:
    return crc32(json.dumps(row, sort_keys=True).encode())
