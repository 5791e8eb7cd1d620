"""The registry of corpora. A corpus is one file here and one line in CORPORA."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from data.corpora import files, pydoc_topics, python_stdlib
from data.corpora.base import SPLITS, Corpus, Document, Split

if TYPE_CHECKING:
    from data.config import DataConfig

CORPORA: "dict[str, Callable[[DataConfig, Path], Corpus]]" = {
    "python-stdlib": python_stdlib.load,
    "pydoc-topics": pydoc_topics.load,
    "files": files.load,
}


def load_corpus(config: "DataConfig", base: Path) -> Corpus:
    """Read the corpus that an experiment names; relative paths start from `base`."""
    return CORPORA[config.corpus](config, base)


__all__ = ["CORPORA", "SPLITS", "Corpus", "Document", "Split", "load_corpus"]
