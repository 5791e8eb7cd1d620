"""Corpora that others publish: WikiText-2 and -103, enwik8 and text8.

WikiText are Wikipedia's good articles as words (Merity et al. 2016); enwik8 and text8 are the first
100 million bytes of an English Wikipedia dump of 2006.
"""

import re
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from data.corpora.base import SPLITS, Corpus, CorpusPaths, Document, ReadAgain, Split
from data.download import Remote, fetch, open_member
from data.text import count_words, to_text

if TYPE_CHECKING:
    from data.config import DataConfig

_HOSTS = (
    "https://wikitext.smerity.com",
    "https://s3.amazonaws.com/research.metamind.io/wikitext",
)
ARCHIVES = {
    # No checksum of a size is published beside the SHA-256: the limits leave room.
    "wikitext-2": Remote(
        "wikitext-2-v1.zip",
        tuple(f"{host}/wikitext-2-v1.zip" for host in _HOSTS),
        sha256="92675f1d63015c1c8b51f1656a52d5bdbc33aafa60cc47a218a66e7ee817488c",
        limit=16_000_000,
    ),
    "wikitext-103": Remote(
        "wikitext-103-v1.zip",
        tuple(f"{host}/wikitext-103-v1.zip" for host in _HOSTS),
        sha256="242ba0f20b329cfdf1ccc61e9e9e5b59becf189db7f7a81cd2a0e2fc31539590",
        limit=400_000_000,
    ),
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
HUTTER_SIZES: dict[Split, int] = {"train": 90_000_000, "valid": 5_000_000, "test": 5_000_000}

_BLANK = b" \n"
# One "=" on either side; a section has "= =". A few lines of formulas look alike, but no blank
# lines stand around them.
_HEADING = re.compile(rb" = (?!= ).+(?<! =) = \n")


def load_wikitext(config: "DataConfig", paths: CorpusPaths) -> Corpus:
    """Download the archive, and read each split article by article, byte for byte.

    `words` in the notes counts the held-out words with one end of line a line, as papers do:
    word perplexity is exp(total nats / words).
    """
    archive = _fetch(config, paths)
    splits = {
        split: ReadAgain(partial(_articles, archive, config.corpus, split)) for split in SPLITS
    }
    words = {
        split: sum(count_words(document.text) for document in splits[split]) for split in SPLITS[1:]
    }
    return Corpus(config.corpus, splits, {"words": words})


def load_hutter(config: "DataConfig", paths: CorpusPaths) -> Corpus:
    """Download the archive and cut its one member into one document a split: 90 / 5 / 5 in order.

    A border inside a character leaves stray bytes, which come back.
    """
    archive = _fetch(config, paths)
    splits = {split: ReadAgain(partial(_part, archive, config.corpus, split)) for split in SPLITS}
    return Corpus(config.corpus, splits, {})


def _fetch(config: "DataConfig", paths: CorpusPaths) -> Path:
    remote = ARCHIVES[config.corpus]
    return fetch(remote, paths.downloads, addresses=config.addresses, progress=paths.progress)


def _articles(archive: Path, name: str, split: Split) -> Iterator[Document]:
    member = f"{name}/wiki.{split}.tokens"
    with open_member(archive, member) as lines:
        for number, article in enumerate(cut_articles(lines)):
            yield Document(f"{split}/{number}", to_text(article))


def cut_articles(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Cut before the blank line before each article's heading; the parts are the whole text."""
    article: list[bytes] = []
    for line in lines:
        article.append(line)
        if len(article) > 3 and _starts_article(*article[-3:]):
            yield b"".join(article[:-3])
            del article[:-3]
    if article:
        yield b"".join(article)


def _starts_article(before: bytes, heading: bytes, after: bytes) -> bool:
    return before == after == _BLANK and _HEADING.fullmatch(heading) is not None


def _part(archive: Path, member: str, split: Split) -> Iterator[Document]:
    before = sum(HUTTER_SIZES[other] for other in SPLITS[: SPLITS.index(split)])
    with open_member(archive, member) as stream:
        stream.seek(before)
        yield Document(split, to_text(stream.read(HUTTER_SIZES[split])))
