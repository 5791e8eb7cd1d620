"""What enwik8 and text8 share: one member of 100 million bytes, split 90 / 5 / 5 in order."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from data.archives import ArchiveError, open_member
from data.corpora.base import SPLITS, Corpus, Document, ReadAgain, Split
from data.raw import to_text

SIZES: dict[Split, int] = {"train": 90_000_000, "valid": 5_000_000, "test": 5_000_000}
_SKIP = 1 << 20


def cut(archive: Path, member: str) -> Corpus:
    """One document a split; a border inside a character leaves stray bytes, which come back.

    Raises:
        ValueError: the archive is damaged, or its member has another size.
    """
    splits = {split: ReadAgain(partial(_read, archive, member, split)) for split in SPLITS}
    return Corpus(member, splits, {})


def _read(archive: Path, member: str, split: Split) -> Iterator[Document]:
    """Yield the one document of a split."""
    total = sum(SIZES.values())
    before = sum(SIZES[other] for other in SPLITS[: SPLITS.index(split)])
    with open_member(archive, member, limit=total) as stream:
        while before:
            before -= len(stream.read(min(before, _SKIP))) or before
        raw = stream.read(SIZES[split])
    if len(raw) != SIZES[split]:
        raise ArchiveError(f"{archive}: {member} has not {total:,} bytes; delete it and run again")
    yield Document(split, to_text(raw))
