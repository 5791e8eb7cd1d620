"""The registry of corpora. A corpus is one file here and one line in CORPORA."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from data.corpora import enwik8, files, pydoc_topics, python_stdlib, text8, tree, wikitext
from data.corpora.base import SPLITS, Corpus, Document, Place, Split

if TYPE_CHECKING:
    from data.config import DataConfig


@dataclass(frozen=True)
class CorpusKind:
    """How a corpus is read, and the keys of `data` that are its own: one it needs, one it takes."""

    load: "Callable[[DataConfig, Place], Corpus]"
    needs: Literal["files", "tree"] | None = None
    takes: Literal["addresses"] | None = None


CORPORA = {
    "python-stdlib": CorpusKind(python_stdlib.load),
    "pydoc-topics": CorpusKind(pydoc_topics.load),
    "wikitext-2": CorpusKind(wikitext.load, takes="addresses"),
    "wikitext-103": CorpusKind(wikitext.load, takes="addresses"),
    "enwik8": CorpusKind(enwik8.load, takes="addresses"),
    "text8": CorpusKind(text8.load, takes="addresses"),
    "files": CorpusKind(files.load, needs="files"),
    "tree": CorpusKind(tree.load, needs="tree"),
}


def load_corpus(
    config: "DataConfig",
    base: Path,
    cache: Path | None = None,
    progress: Callable[[str], None] = lambda message: None,
    is_run: Callable[[Path], bool] = lambda folder: False,
) -> Corpus:
    """Read the corpus that an experiment names.

    Args:
        config: names the corpus.
        base: folder that relative paths start from.
        cache: folder for what is downloaded (default: PARNAS_CACHE or ~/.cache/parnas).
        progress: takes one-line messages.
        is_run: whether a folder is the run of some command; `tree` leaves it out.

    Raises:
        ValueError: the corpus cannot be had.
        OSError: a file cannot be read or written.
    """
    return CORPORA[config.corpus].load(config, Place(base, cache, progress, is_run))


__all__ = ["CORPORA", "SPLITS", "Corpus", "Document", "Split", "load_corpus"]
