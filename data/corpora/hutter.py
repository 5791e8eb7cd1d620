"""enwik8 and text8: the first 100 million bytes of an English Wikipedia dump of 2006."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from data.archives import ArchiveError, open_member
from data.corpora.base import SPLITS, Corpus, CorpusPaths, Document, ReadAgain, Split
from data.download import Remote, fetch
from data.text import to_text

if TYPE_CHECKING:
    from data.config import DataConfig

ARCHIVES = {
    # XML and all.
    "enwik8": Remote(
        "enwik8.zip",
        ("https://mattmahoney.net/dc/enwik8.zip", "https://data.deepai.org/enwik8.zip"),
        sha256="547994d9980ebed1288380d652999f38a14fe291a6247c157c3d33d4932534bc",
        limit=36_445_475,
        size=36_445_475,
    ),
    # Letters a to z and spaces.
    "text8": Remote(
        "text8.zip",
        ("https://mattmahoney.net/dc/text8.zip",),
        sha256="a6640522afe85d1963ad56c05b0ede0a0c000dddc9671758a6cc09b7a38e5232",
        limit=31_344_016,
        size=31_344_016,
    ),
}
SIZES: dict[Split, int] = {"train": 90_000_000, "valid": 5_000_000, "test": 5_000_000}
_SKIP = 1 << 20


def load(config: "DataConfig", paths: CorpusPaths) -> Corpus:
    """Download the archive and cut its one member into one document a split: 90 / 5 / 5 in order.

    A border inside a character leaves stray bytes, which come back.

    Raises:
        ValueError: the archive cannot be had, is not the published one, or is damaged.
        OSError: the cache cannot be written.
    """
    member = config.corpus
    archive = fetch(
        ARCHIVES[member], paths.downloads, addresses=config.addresses, progress=paths.progress
    )
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
