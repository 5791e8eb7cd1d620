"""tokenizer.json: versioned, plain, refused by name when damaged or unknown."""

import json
from pathlib import Path
from stat import S_ISREG
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from data.tokenizers.pieces import IdArray

FILE = "tokenizer.json"
MODEL_FILE = "tokenizer.model"
VERSION = 2
# No file of a tokenizer is larger; what claims to be is not read.
MAX_BYTES = 2**28
_LARGEST = 2**24
_Rank = Annotated[int, Field(ge=0, lt=_LARGEST)]


class TokenizerFile(BaseModel):
    """What tokenizer.json says."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    version: int = Field(ge=VERSION, le=VERSION)  # strict; a Literal is not
    kind: str
    vocabulary_size: int = Field(ge=1, le=_LARGEST)
    digest: str = Field(max_length=200)
    model_sha256: str | None = Field(default=None, max_length=64)  # older files have none
    lower_case: bool
    came_back: bool
    ranks: tuple[_Rank, ...]


def write_tokenizer_file(
    folder: Path,
    *,
    kind: str,
    digest: str,
    rank_V: IdArray,
    lower_case: bool,
    came_back: bool,
    model_sha256: str | None,
) -> None:
    """Write tokenizer.json.

    Args:
        folder: made where it is not there.
        kind: the name in the registry.
        digest: what the loaded tokenizer must have.
        rank_V: the id (rank) of each source id.
        lower_case: whether text is lower-cased first.
        came_back: False where a text was seen to come back changed.
        model_sha256: hash of the bytes of tokenizer.model, where there is one.
    """
    content = {
        "version": VERSION,
        "kind": kind,
        "vocabulary_size": len(rank_V),
        "digest": digest,
        "model_sha256": model_sha256,
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
    content = read_file(path)
    try:
        saved = TokenizerFile.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"][:4]) or "content"
        raise ValueError(
            f"{path}: {where:.60}: {first['msg']} (this program reads version {VERSION}); "
            f"save the tokenizer again"
        ) from error
    names = [name for name, _ in json.loads(content, object_pairs_hook=list)]
    if len(set(names)) < len(names):
        raise ValueError(f"{path}: a key stands twice; save the tokenizer again")
    if saved.vocabulary_size != len(saved.ranks):
        raise ValueError(
            f"{path}: vocabulary_size: {saved.vocabulary_size}, but there are {len(saved.ranks)} "
            f"ranks; save the tokenizer again"
        )
    return saved


def read_file(path: Path) -> bytes:
    """The bytes of one of a tokenizer's files.

    Raises:
        ValueError: it is no file, or larger than any tokenizer's.
        OSError: it cannot be read.
    """
    status = path.stat()
    if not S_ISREG(status.st_mode):
        raise ValueError(f"{path}: not a file; save the tokenizer again")
    if status.st_size > MAX_BYTES:
        raise ValueError(f"{path}: larger than {MAX_BYTES} bytes; save the tokenizer again")
    return path.read_bytes()
