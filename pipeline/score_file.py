"""A file of layouts' scores by one SuperNet: a line for each, added as it comes."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from nas.statistics.paired_scores import Score
from utils.files import append_line, write_whole

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
        append_line(self.path, json.dumps(row))
        self.scores[labels] = score


def open_scores(path: Path, key: str) -> ScoreCache:
    """The scores of a key that a file holds; an empty cache where there is no file.

    A kill may have torn the last line: it is cut off, and its layout scored again.
    """
    cache = ScoreCache(path, key)
    content = path.read_bytes() if path.exists() else b""
    if not content.endswith(b"\n") and content:
        write_whole(path, content := content[: content.rfind(b"\n") + 1])
    for row in map(json.loads, content.splitlines()):
        if row["key"] == key:
            nats_P, tokens_P = (np.array(row[name], np.float64) for name in ("nats", "tokens"))
            cache.scores[tuple(row["layout"])] = Score(nats_P, tokens_P)
    return cache
