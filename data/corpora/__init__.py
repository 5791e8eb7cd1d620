"""The registry of corpora. A corpus is a function in a file here and a line in CORPORA."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from data.corpora.base import SPLITS, Corpus, CorpusPaths, Document, Split
from data.corpora.downloaded import load_hutter, load_wikitext
from data.corpora.local import load_files, load_pydoc_topics, load_python_stdlib, load_tree

if TYPE_CHECKING:
    from data.config import DataConfig

    Load = Callable[[DataConfig, CorpusPaths], Corpus]


@dataclass(frozen=True)
class CorpusKind:
    """Reader of a corpus, and the key of `data` that it needs."""

    load: "Load"
    needs: Literal["files", "tree"] | None = None


CORPORA = {
    "python-stdlib": CorpusKind(load_python_stdlib),
    "pydoc-topics": CorpusKind(load_pydoc_topics),
    "wikitext-2": CorpusKind(load_wikitext),
    "wikitext-103": CorpusKind(load_wikitext),
    "enwik8": CorpusKind(load_hutter),
    "text8": CorpusKind(load_hutter),
    "files": CorpusKind(load_files, needs="files"),
    "tree": CorpusKind(load_tree, needs="tree"),
}


def load_corpus(config: "DataConfig", paths: CorpusPaths) -> Corpus:
    """Read the corpus that an experiment names.

    ValueError where it cannot be had; the message says what to do.
    """
    return CORPORA[config.corpus].load(config, paths)


__all__ = ["CORPORA", "SPLITS", "Corpus", "CorpusPaths", "Document", "Split", "load_corpus"]
