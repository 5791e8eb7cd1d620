"""python-stdlib: the library sources of the interpreter that runs, real text without a download."""

import os
import platform
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from data.corpora.base import Corpus, Document, Place, split_by_name

if TYPE_CHECKING:
    from data.config import DataConfig

NAME = "python-stdlib"
TRAIN_SHARE, VALID_SHARE = 0.90, 0.05
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


def load(config: "DataConfig", place: Place) -> Corpus:
    """Read the running interpreter's own library sources, split by a hash of their paths."""
    return read_library(Path(sysconfig.get_path("stdlib")))


def read_library(root: Path) -> Corpus:
    """Read the library sources under a folder.

    Raises:
        ValueError: the folder holds less than 1 MB of Python sources.
    """
    documents, undecodable = [], []
    for path in sorted(_sources(root)):
        try:
            # Decoding bytes keeps "\r\n", which reading in text mode would rewrite.
            text = (root / path).read_bytes().decode()
        except UnicodeDecodeError:
            undecodable.append(path)
            continue
        documents.append(Document(path, text))
    size = sum(len(document.text) for document in documents)
    if size < SMALLEST_BYTES:
        raise ValueError(
            f"data.corpus: {NAME} needs the Python library's sources, but {root} holds "
            f"{size:,} characters in {len(documents)} *.py files (at least {SMALLEST_BYTES:,} "
            f"expected); install them, or use corpus: files with your own texts, "
            f"or corpus: pydoc-topics"
        )
    notes = {
        "python": platform.python_version(),
        "undecodable_files": undecodable,
    }
    return Corpus(NAME, split_by_name(documents, TRAIN_SHARE, VALID_SHARE), notes)


def _sources(root: Path) -> Iterator[str]:
    """Relative posix paths of the library's *.py files."""
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
