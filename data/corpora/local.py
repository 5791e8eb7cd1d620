"""Text that lies on this machine: the user's files or folder, Python's library and its help."""

import hashlib
import importlib
import os
import platform
import stat
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from data.corpora.base import (
    SPLITS,
    Corpus,
    CorpusPaths,
    Document,
    ReadAgain,
    Split,
    long_lines,
    readable_path,
    split_by_hash,
)
from data.text import bare_lines, to_utf8_text, why_no_utf8

if TYPE_CHECKING:
    from data.config import DataConfig

FILES = "files"
TREE = "tree"
TRAIN_SHARE, VALID_SHARE = 0.90, 0.05
_MOST_NAMED = 5

STDLIB = "python-stdlib"
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


def load_files(config: "DataConfig", paths: CorpusPaths) -> Corpus:
    """Read the three UTF-8 files of `data.files`, one document each, byte for byte.

    But for a byte order mark, which is left out.
    """
    assert config.files is not None, "the config's own check lets no corpus: files without paths"
    splits: dict[Split, list[Document]] = {}
    for split in SPLITS:
        key = f"data.files.{split}"
        path = readable_path(paths.base, getattr(config.files, split), key, "file")
        text = to_utf8_text(path.read_bytes(), f"{key}: {path}")
        splits[split] = [Document(f"{split}.txt", text)]
    if len({splits[split][0].text for split in SPLITS}) < len(SPLITS):
        raise ValueError(
            "data.files: two splits are the same text, so nothing would be held out; give each its "
            "own"
        )
    return Corpus(FILES, splits, {"paths": config.files.model_dump()})


def load_tree(config: "DataConfig", paths: CorpusPaths) -> Corpus:
    """Read a folder's files, split by a hash of their relative paths.

    Files of equal lines go to one split together. Files that are no UTF-8, empty ones and links
    are left out; run folders and the cache too, for each command would change the text. So are
    byte order marks.
    """
    assert config.tree is not None, "the config's own check lets no corpus: tree without a folder"
    root = readable_path(paths.base, config.tree.folder, "data.tree.folder", "folder")
    if paths.is_written_to(root):
        raise ValueError(
            f"data.tree.folder: {root}: is itself a run folder or the cache, whose files change "
            "with every command; give a folder of texts, or another --run"
        )
    first: dict[bytes, str] = {}
    groups: dict[str, str] = {}
    undecodable = list[str]()
    for path in sorted(_files(root, paths)):
        if not any(matches(path, glob) for glob in config.tree.include) or any(
            matches(path, glob) for glob in config.tree.exclude
        ):
            continue
        raw = (root / path).read_bytes()
        if why_no_utf8(raw):
            undecodable.append(path)
        elif raw:
            lines = "\n".join(bare_lines(raw.decode()))
            groups[path] = first.setdefault(hashlib.sha256(lines.encode()).digest(), path)
    if undecodable:
        named = ", ".join(undecodable[:_MOST_NAMED])
        paths.progress(f"data.tree: {len(undecodable)} files are no UTF-8 and left out: {named}")
    if not groups:
        raise ValueError(
            f"data.tree: {root} has no text file that matches {', '.join(config.tree.include)} "
            f"({len(undecodable)} that match are no UTF-8); change include or exclude"
        )
    splits = {
        split: ReadAgain(partial(_read, root, names))
        for split, names in split_by_hash(groups, TRAIN_SHARE, VALID_SHARE).items()
    }
    notes = {"tree": config.tree.model_dump(mode="json"), "undecodable_files": undecodable}
    return Corpus(TREE, splits, notes)


def _read(root: Path, paths: Sequence[str]) -> Iterator[Document]:
    for path in paths:
        yield Document(path, (root / path).read_bytes().decode("utf-8-sig"))


def matches(path: str, glob: str) -> bool:
    """Match a relative posix path with a glob; `**` is any number of folders, also none."""
    return _fits(path.split("/"), glob.split("/"))


def _fits(parts: Sequence[str], globs: Sequence[str]) -> bool:
    if not globs:
        return not parts
    if globs[0] == "**":
        rest = globs[1:] or ["*"]  # at the end it stands for every file below
        return any(_fits(parts[i:], rest) for i in range(len(parts)))
    return bool(parts) and fnmatchcase(parts[0], globs[0]) and _fits(parts[1:], globs[1:])


def _files(root: Path, paths: CorpusPaths) -> Iterator[str]:
    def refuse(error: OSError) -> None:
        raise error

    for folder, subfolders, files in os.walk(root, onerror=refuse):
        here = Path(folder).relative_to(root)
        if folder != str(root) and paths.is_written_to(Path(folder)):
            paths.progress(f"data.tree: a run folder or the cache is left out: {here}")
            subfolders.clear()
            continue
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        for name in files:
            path = here / name
            if not name.startswith(".") and stat.S_ISREG((root / path).lstat().st_mode):
                yield path.as_posix()


def load_python_stdlib(config: "DataConfig", paths: CorpusPaths) -> Corpus:
    """Read the running interpreter's own library sources, split by a hash of their paths."""
    return read_library(Path(sysconfig.get_path("stdlib")))


def read_library(root: Path) -> Corpus:
    """Read the library sources under a folder; ValueError where they are less than 1 MB."""
    documents: dict[str, Document] = {}
    undecodable = []
    for path in sorted(_sources(root)):
        # Decoding bytes keeps "\r\n", which reading in text mode would rewrite.
        raw = (root / path).read_bytes()
        if why_no_utf8(raw):
            undecodable.append(path)
        else:
            documents[path] = Document(path, raw.decode())
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
    splits = split_by_hash(paths, TRAIN_SHARE, VALID_SHARE)
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
