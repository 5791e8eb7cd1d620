"""tokenizer.json: versioned, plain, refused by name when damaged or unknown."""

import json
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from data.tokenizers.pieces import IdArray

FILE = "tokenizer.json"
MODEL_FILE = "tokenizer.model"
VERSION = 2


class TokenizerFile(BaseModel):
    """What tokenizer.json says."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    version: Literal[2]
    kind: str
    vocabulary_size: int
    digest: str
    lower_case: bool
    came_back: bool
    ranks: tuple[int, ...]


def write_tokenizer_file(
    folder: Path, *, kind: str, digest: str, rank_V: IdArray, lower_case: bool, came_back: bool
) -> None:
    """Write tokenizer.json.

    Args:
        folder: made where it is not there.
        kind: the name in the registry.
        digest: what the loaded tokenizer must have.
        rank_V: the id (rank) of each source id.
        lower_case: whether text is lower-cased first.
        came_back: False where a text was seen to come back changed.
    """
    content = {
        "version": VERSION,
        "kind": kind,
        "vocabulary_size": len(rank_V),
        "digest": digest,
        "lower_case": lower_case,
        "came_back": came_back,
        "ranks": rank_V.tolist(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_text(json.dumps(content) + "\n", encoding="utf-8")


def read_tokenizer_file(folder: Path) -> TokenizerFile:
    """Read tokenizer.json.

    Raises:
        ValueError: damaged, or of another version than this program knows.
        OSError: cannot be read.
    """
    path = folder / FILE
    try:
        return TokenizerFile.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "content"
        raise ValueError(
            f"{path}: {where}: {first['msg']} (this program reads version {VERSION}); "
            f"save the tokenizer again"
        ) from error
