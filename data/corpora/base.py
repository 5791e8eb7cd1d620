"""A corpus: three splits of named documents, what it measured about itself, and its digest."""

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from os.path import expanduser
from pathlib import Path
from typing import Any, Literal, get_args

from data.cache import default_cache
from data.text import bare_lines, to_bytes

Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)

# Characters of a line that finding twice is no accident, whatever stands around it.
LONG = 60


@dataclass(frozen=True)
class Document:
    """One file, article or topic. `to_bytes(text)` gives back the bytes it was read from.

    But for a byte order mark; the name of a file may be no UTF-8.
    """

    name: str
    text: str


def readable_path(base: Path, path: str, key: str, kind: Literal["file", "folder"]) -> Path:
    """A path of an experiment, from the base; ValueError where it cannot be read."""
    if (why := why_unreadable(base, path, key, kind)) is not None:
        raise ValueError(f"{key}: {why}")
    return base / expanduser(path)


def why_unreadable(base: Path, path: str, key: str, kind: Literal["file", "folder"]) -> str | None:
    """Reason why a path of an experiment cannot be read, without the key; None where it can."""
    full = base / expanduser(path)
    if not full.exists():
        return (
            f"{full}: no such {kind}; relative paths start from {base.resolve()}: run "
            f"the command from another folder, or --set {key}=PATH"
        )
    if not (full.is_file() if kind == "file" else full.is_dir()):
        return f"{full}: is not a {kind}; give the path of one"
    return None if os.access(full, os.R_OK) else f"{full}: may not be read (permissions)"


@dataclass(frozen=True)
class CorpusPaths:
    """Places that a corpus is read from, and who is told about it.

    Relative paths start from `base`; downloads go to `cache`, and what is built. `is_run` says
    whether a folder is the run of some command, whose files are no text.
    """

    base: Path = Path()
    cache: Path = field(default_factory=default_cache)
    progress: Callable[[str], None] = lambda message: None
    is_run: Callable[[Path], bool] = lambda folder: False

    def is_written_to(self, folder: Path) -> bool:
        """True for a run folder and the cache: what stands there changes with every command."""
        return (self.cache.exists() and folder.samefile(self.cache)) or self.is_run(folder)

    @property
    def downloads(self) -> Path:
        """Folder of downloaded files, where those fetched by hand are put too."""
        return self.cache / "downloads"


@dataclass(frozen=True)
class ReadAgain:
    """Documents that are read anew at every iteration, for texts too large to hold."""

    read: Callable[[], Iterator[Document]]

    def __iter__(self) -> Iterator[Document]:
        """Read from the first document on."""
        return self.read()


class Corpus:
    """Documents of the three splits in a fixed order. Only held-out long lines are held here.

    `digest` is the SHA-256 over names and bytes of all documents of all splits; `notes` are what
    the corpus counted about itself, ready for JSON.
    """

    def __init__(
        self, name: str, splits: Mapping[Split, Iterable[Document]], notes: Mapping[str, Any]
    ) -> None:
        """Measure the documents of each split, which give the same at every iteration."""
        self.name = name
        self._documents = dict(splits)
        held_out = {split: Counter(long_lines(splits[split])) for split in SPLITS[1:]}
        wanted = frozenset(chain.from_iterable(held_out.values()))
        in_train: set[str] = set()
        digest = hashlib.sha256()
        # The hash before each split, and after it.
        self._marks: dict[Split, tuple[hashlib._Hash, str]] = {}
        documents, characters, sizes = (dict.fromkeys(SPLITS, 0) for _ in range(3))
        for split in SPLITS:
            before = digest.copy()
            for document in splits[split]:
                documents[split] += 1
                characters[split] += len(document.text)
                sizes[split] += _update(digest, split, document)
                if split == "train":
                    in_train |= wanted.intersection(long_lines([document]))
            self._marks[split] = before, digest.hexdigest()
            if not sizes[split]:
                raise ValueError(
                    f"data.corpus: {name} has no text in its {split} split here; "
                    f"use corpus: files with your own texts"
                )
        self.digest = digest.hexdigest()
        self.notes: dict[str, Any] = {
            **notes,
            "documents": documents,
            "characters": characters,
            "bytes": sizes,
            "lines_found_in_train": {
                # A line that comes twice counts twice.
                split: {"lines": lines.total(), "found": sum(lines[line] for line in in_train)}
                for split, lines in held_out.items()
            },
        }

    def documents(self, split: Split) -> Iterator[Document]:
        """The documents of a split; ValueError behind the last: they were changed since."""
        before, after = self._marks[split]
        digest = before.copy()
        for document in self._documents[split]:
            _update(digest, split, document)
            yield document
        if digest.hexdigest() != after:
            # Under the digest of one text the cache would keep the tokens of another.
            raise ValueError(
                f"data.corpus: {self.name}: a text was changed while it was read; run it again"
            )


def hash_share(name: str) -> float:
    """A number in [0, 1) that depends on the name alone."""
    return int.from_bytes(hashlib.sha256(os.fsencode(name)).digest()[:6], "big") / 2**48


def split_by_hash(
    group_of: Mapping[str, str], train: float, valid: float
) -> dict[Split, list[str]]:
    """Give every name to one split by the hash of its group; `train` and `valid` are shares.

    A new name moves none outside its group to another split, as drawing or counting would.
    """
    splits: dict[Split, list[str]] = {split: [] for split in SPLITS}
    for name, group in group_of.items():
        share = hash_share(group)
        split: Split = "train" if share < train else "valid" if share < train + valid else "test"
        splits[split].append(name)
    return splits


def _update(digest: "hashlib._Hash", split: Split, document: Document) -> int:
    """Add a document to the digest; returns its size in bytes."""
    raw = to_bytes(document.text)
    # Lengths before contents: no two different corpora can spell the same bytes.
    for part in (split.encode(), os.fsencode(document.name), raw):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return len(raw)


def long_lines(documents: Iterable[Document]) -> Iterator[str]:
    """Lines of LONG characters or more."""
    for document in documents:
        yield from (line for line in bare_lines(document.text) if len(line) >= LONG)
