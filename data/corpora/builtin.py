"""Corpora that come with Python: its library's sources, and the texts of its help."""

import importlib
import os
import platform
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from data.corpora.base import Corpus, CorpusPaths, Document, Split, long_lines, split_by_hash

if TYPE_CHECKING:
    from data.config import DataConfig

STDLIB = "python-stdlib"
STDLIB_TRAIN_SHARE, STDLIB_VALID_SHARE = 0.90, 0.05
SMALLEST_BYTES = 1_000_000

# Tests repeat the library they test, tables are not text, site-packages is not the library.
_SKIPPED_FOLDERS = frozenset(
    {
        "__pycache__",
        "dist-packages",
        "encodings",
        "idle_test",
        "pydoc_data",
        "site-packages",
        "test",
        "tests",
    }
)
_SKIPPED_PATHS = frozenset({"lib2to3/pgen2"})
# Written when an interpreter is built: holds that machine's paths and compiler flags.
_SKIPPED_PREFIXES = ("_sysconfigdata_",)
TOPICS = "pydoc-topics"
TOPICS_TRAIN_SHARE, TOPICS_VALID_SHARE = 0.80, 0.10


def load_python_stdlib(config: "DataConfig", paths: CorpusPaths) -> Corpus:
    """Read the running interpreter's own library sources, split by a hash of their paths."""
    return read_library(Path(sysconfig.get_path("stdlib")))


def read_library(root: Path) -> Corpus:
    """Read the library sources under a folder; ValueError where they are less than 1 MB."""
    documents: dict[str, Document] = {}
    undecodable = []
    for path in sorted(_sources(root)):
        try:
            # Decoding bytes keeps "\r\n", which reading in text mode would rewrite.
            text = (root / path).read_bytes().decode()
        except UnicodeDecodeError:
            undecodable.append(path)
            continue
        documents[path] = Document(path, text)
    size = sum(len(document.text) for document in documents.values())
    if size < SMALLEST_BYTES:
        raise ValueError(
            f"data.corpus: {STDLIB} needs the Python library's sources, but {root} holds "
            f"{size:,} characters in {len(documents)} *.py files (at least {SMALLEST_BYTES:,} "
            f"expected); install them, or use corpus: files with your own texts, "
            f"or corpus: pydoc-topics"
        )
    notes = {"python": platform.python_version(), "undecodable_files": undecodable}
    paths = {path: path for path in documents}
    splits = split_by_hash(paths, STDLIB_TRAIN_SHARE, STDLIB_VALID_SHARE)
    return Corpus(STDLIB, _documents_of(splits, documents), notes)


def _sources(root: Path) -> Iterator[str]:
    for folder, subfolders, files in os.walk(root):
        here = Path(folder).relative_to(root)
        subfolders[:] = [
            name
            for name in subfolders
            if name not in _SKIPPED_FOLDERS and (here / name).as_posix() not in _SKIPPED_PATHS
        ]
        for name in files:
            if name.endswith(".py") and not name.startswith(_SKIPPED_PREFIXES):
                yield (here / name).as_posix()


def load_pydoc_topics(config: "DataConfig", paths: CorpusPaths) -> Corpus:
    """Read the topics, one document each, split by a hash of the topic's name.

    Some topics repeat others word for word. Topics that share a long line go to one split
    together, by the hash of the first name among them, or a third of the held-out lines would
    stand in the training text.
    """
    try:
        topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"data.corpus: {TOPICS} needs the module pydoc_data.topics, which this Python "
            f"{platform.python_version()} does not have; use corpus: python-stdlib or files"
        ) from error
    documents = {name: Document(name, topics[name]) for name in sorted(topics)}
    groups = _group(documents.values())
    splits = split_by_hash(groups, TOPICS_TRAIN_SHARE, TOPICS_VALID_SHARE)
    return Corpus(TOPICS, _documents_of(splits, documents), {"python": platform.python_version()})


def _documents_of(
    splits: Mapping[Split, Sequence[str]], documents: Mapping[str, Document]
) -> dict[Split, list[Document]]:
    return {split: [documents[name] for name in names] for split, names in splits.items()}


def _group(documents: Iterable[Document]) -> dict[str, str]:
    """Name the first document of the group that each document shares long lines with."""
    first = {document.name: document.name for document in documents}
    seen: dict[str, str] = {}
    for document in documents:
        for line in long_lines([document]):
            one, other = sorted((first[document.name], first[seen.setdefault(line, document.name)]))
            if one != other:
                first = {name: one if f == other else f for name, f in first.items()}
    return first
