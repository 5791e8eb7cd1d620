"""What enwik8 and text8 share: one member of 100 million bytes, split 90 / 5 / 5 in order."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from data.archives import ArchiveError, open_member
from data.corpora.base import SPLITS, Corpus, Document, Place, ReadAgain, Split
from data.download import Remote, fetch
from data.raw import to_text

if TYPE_CHECKING:
    from data.config import DataConfig

SIZES: dict[Split, int] = {"train": 90_000_000, "valid": 5_000_000, "test": 5_000_000}
_SKIP = 1 << 20


def load(member: str, remote: Remote, config: "DataConfig", place: Place) -> Corpus:
    """Download the archive and cut its one member into one document a split.

    A border inside a character leaves stray bytes, which come back.

    Raises:
        ValueError: the archive cannot be had, is not the published one, or is damaged.
        OSError: the cache cannot be written.
    """
    archive = fetch(remote, place.downloads, addresses=config.addresses, progress=place.progress)
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
