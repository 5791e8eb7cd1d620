"""files: the user's own training, validation and test text."""

from itertools import combinations
from typing import TYPE_CHECKING

from data.corpora.base import SPLITS, Corpus, Document, Place, Split
from data.raw import to_utf8_text

if TYPE_CHECKING:
    from data.config import DataConfig

NAME = "files"


def load(config: "DataConfig", place: Place) -> Corpus:
    """Read three UTF-8 files, one document each, byte for byte.

    Args:
        config: its `files` section gives the paths.
        place: its base is the folder that relative paths start from.

    Raises:
        ValueError: a file is missing, empty or not UTF-8, or two splits are the same text.
    """
    assert config.files is not None, "the config's own check lets no corpus: files without paths"
    splits: dict[Split, list[Document]] = {}
    for split in SPLITS:
        key = f"data.files.{split}"
        path = place.path(getattr(config.files, split), key, "file")
        text = to_utf8_text(path.read_bytes(), f"{key}: {path}")
        splits[split] = [Document(f"{split}.txt", text)]
    for one, other in combinations(SPLITS, 2):
        if splits[one][0].text == splits[other][0].text:
            raise ValueError(
                f"data.files: {one} ({getattr(config.files, one)}) and "
                f"{other} ({getattr(config.files, other)}) are the same text, so nothing "
                f"would be held out; give each split its own text"
            )
    return Corpus(NAME, splits, {"paths": config.files.model_dump()})
