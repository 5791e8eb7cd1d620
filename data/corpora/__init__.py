"""The registry of corpora. A corpus is a function in a file here and a line in CORPORA."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from data.corpora.base import SPLITS, Corpus, CorpusPaths, Document, Split
from data.corpora.downloaded import load_hutter, load_wikitext
from data.corpora.local import load_files, load_pydoc_topics, load_python_stdlib, load_tree

if TYPE_CHECKING:
    from data.config import DataConfig


@dataclass(frozen=True)
class CorpusKind:
    """Reader of a corpus, and the keys of `data` that are its own: one it needs, one it takes."""

    load: "Callable[[DataConfig, CorpusPaths], Corpus]"
    needs: Literal["files", "tree"] | None = None
    takes: Literal["addresses"] | None = None


CORPORA = {
    "python-stdlib": CorpusKind(load_python_stdlib),
    "pydoc-topics": CorpusKind(load_pydoc_topics),
    "wikitext-2": CorpusKind(load_wikitext, takes="addresses"),
    "wikitext-103": CorpusKind(load_wikitext, takes="addresses"),
    "enwik8": CorpusKind(load_hutter, takes="addresses"),
    "text8": CorpusKind(load_hutter, takes="addresses"),
    "files": CorpusKind(load_files, needs="files"),
    "tree": CorpusKind(load_tree, needs="tree"),
}


def load_corpus(
    config: "DataConfig",
    base: Path,
    cache: Path | None = None,
    progress: Callable[[str], None] = lambda message: None,
    is_run: Callable[[Path], bool] = lambda folder: False,
) -> Corpus:
    """Read the corpus that an experiment names; the other arguments as in `CorpusPaths`.

    ValueError where it cannot be had; the message says what to do.
    """
    return CORPORA[config.corpus].load(config, CorpusPaths(base, cache, progress, is_run))


__all__ = ["CORPORA", "SPLITS", "Corpus", "Document", "Split", "load_corpus"]
