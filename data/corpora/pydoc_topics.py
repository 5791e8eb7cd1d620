"""pydoc-topics: half a megabyte of English, the reference texts behind Python's `help()`."""

import importlib
import platform
from collections.abc import Sequence
from typing import TYPE_CHECKING

from data.corpora.base import Corpus, Document, Place, long_lines, split_by_name

if TYPE_CHECKING:
    from data.config import DataConfig

NAME = "pydoc-topics"
TRAIN_SHARE, VALID_SHARE = 0.80, 0.10


def load(config: "DataConfig", place: Place) -> Corpus:
    """Read the topics, one document each, split by a hash of the topic's name.

    Some topics repeat others word for word. Topics that share a long line go to one split
    together, by the hash of the first name among them, or a third of the held-out lines would
    stand in the training text.

    Raises:
        ValueError: this Python comes without the topics.
    """
    try:
        topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"data.corpus: {NAME} needs the module pydoc_data.topics, which this Python "
            f"{platform.python_version()} does not have; use corpus: python-stdlib or files"
        ) from error
    documents = [Document(name, topics[name]) for name in sorted(topics)]
    notes = {"python": platform.python_version()}
    groups = _group(documents)
    return Corpus(NAME, split_by_name(documents, TRAIN_SHARE, VALID_SHARE, groups), notes)


def _group(documents: Sequence[Document]) -> dict[str, str]:
    """Name the first document of the group that each document shares long lines with."""
    first = {document.name: document.name for document in documents}
    seen: dict[str, str] = {}
    for document in documents:
        for line in long_lines([document]):
            one, other = sorted((first[document.name], first[seen.setdefault(line, document.name)]))
            if one != other:
                first = {name: one if f == other else f for name, f in first.items()}
    return first
