"""A corpus: three splits of named documents, what it measured about itself, and its digest."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)

OVERLAP_CHARACTERS = 60


@dataclass(frozen=True)
class Document:
    """One file, article or topic. `text.encode()` gives back the bytes it was read from."""

    name: str
    text: str


class Corpus:
    """Documents of the three splits in a fixed order.

    Attributes:
        name: the registered name.
        digest: sha256 over the names and bytes of all documents of all splits.
        notes: what the corpus counted about itself, ready for JSON.
    """

    def __init__(
        self, name: str, splits: Mapping[Split, Sequence[Document]], notes: Mapping[str, Any]
    ) -> None:
        self.name = name
        self._documents = {split: tuple(splits[split]) for split in SPLITS}
        for split in SPLITS:
            if not any(document.text for document in self._documents[split]):
                raise ValueError(
                    f"data.corpus: {name} has no text in its {split} split here; "
                    f"use corpus: files with your own texts"
                )
        self.digest = _digest(self._documents)
        self.notes: dict[str, Any] = {
            **notes,
            "documents": {split: len(self._documents[split]) for split in SPLITS},
            "bytes": {split: _bytes(self._documents[split]) for split in SPLITS},
            "lines_found_in_train": {
                split: _overlap(self._documents["train"], self._documents[split])
                for split in SPLITS[1:]
            },
        }

    def documents(self, split: Split) -> Iterator[Document]:
        """The documents of a split, always in the same order."""
        return iter(self._documents[split])


def hash_share(name: str) -> float:
    """A number in [0, 1) that depends on the name alone: where whole documents are split."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:6], "big") / 2**48


def split_by_name(
    documents: Sequence[Document],
    train: float,
    valid: float,
    groups: Mapping[str, str] | None = None,
) -> dict[Split, list[Document]]:
    """Give every document to one split by a hash of its name; the rest is the test split.

    Args:
        documents: in the order in which they stay.
        train: share of the names that go to the training split.
        valid: share of the names that go to the validation split.
        groups: another name to hash for each document; those with the same one stay together.
    """
    splits: dict[Split, list[Document]] = {split: [] for split in SPLITS}
    for document in documents:
        share = hash_share(groups[document.name] if groups else document.name)
        split: Split = "train" if share < train else "valid" if share < train + valid else "test"
        splits[split].append(document)
    return splits


def _bytes(documents: Sequence[Document]) -> int:
    return sum(len(document.text.encode()) for document in documents)


def _digest(splits: Mapping[Split, Sequence[Document]]) -> str:
    digest = hashlib.sha256()
    for split in SPLITS:
        for document in splits[split]:
            # Lengths before contents: no two different corpora can spell the same bytes.
            for field in (split.encode(), document.name.encode(), document.text.encode()):
                digest.update(len(field).to_bytes(8, "big"))
                digest.update(field)
    return digest.hexdigest()


def long_lines(documents: Sequence[Document]) -> Iterator[str]:
    """Lines long enough that finding one twice is no accident."""
    for document in documents:
        for line in document.text.split("\n"):
            if len(line) >= OVERLAP_CHARACTERS:
                yield line


def _overlap(train: Sequence[Document], held_out: Sequence[Document]) -> dict[str, Any]:
    """Count the long held-out lines that stand verbatim in the training text."""
    lines = list(long_lines(held_out))
    found = set(lines) & set(long_lines(train))
    seen = sum(line in found for line in lines)
    return {
        "at_least_characters": OVERLAP_CHARACTERS,
        "lines": len(lines),
        "found": seen,
        "share": seen / len(lines) if lines else 0.0,
    }
