"""The registry of corpora. A corpus is a function in a file here and a line in CORPORA."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from data.corpora.base import SPLITS, Corpus, CorpusPaths, Document, Split

if TYPE_CHECKING:
    from data.config import DataConfig

    Load = Callable[[DataConfig, CorpusPaths], Corpus]


@dataclass(frozen=True)
class CorpusKind:
    """Reader of a corpus, and the key of `data` that it needs."""

    load: "Load"
    needs: Literal["files", "tree"] | None = None


def _reader(module: str, name: str) -> "Load":
    """A function of a module here, which is imported when a corpus is read."""

    def load(config: "DataConfig", paths: CorpusPaths) -> Corpus:
        corpus: Corpus = getattr(import_module(f"data.corpora.{module}"), name)(config, paths)
        return corpus

    return load


CORPORA = {
    "python-stdlib": CorpusKind(_reader("local", "load_python_stdlib")),
    "pydoc-topics": CorpusKind(_reader("local", "load_pydoc_topics")),
    "wikitext-2": CorpusKind(_reader("downloaded", "load_wikitext")),
    "wikitext-103": CorpusKind(_reader("downloaded", "load_wikitext")),
    "enwik8": CorpusKind(_reader("downloaded", "load_hutter")),
    "text8": CorpusKind(_reader("downloaded", "load_hutter")),
    "files": CorpusKind(_reader("local", "load_files"), needs="files"),
    "tree": CorpusKind(_reader("local", "load_tree"), needs="tree"),
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
