"""wikitext-2 and wikitext-103: Wikipedia's good articles as words (Merity et al. 2016)."""

import re
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from data.archives import open_member
from data.corpora.base import SPLITS, Corpus, CorpusPaths, Document, ReadAgain, Split
from data.download import Remote, fetch
from data.text import count_words, to_text

if TYPE_CHECKING:
    from data.config import DataConfig

_HOSTS = (
    "https://wikitext.smerity.com",
    "https://s3.amazonaws.com/research.metamind.io/wikitext",
)
# No checksum of a size is published beside the SHA-256: the limits leave room.
ARCHIVES = {
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
}
LARGEST_MEMBER = 1_000_000_000

_BLANK = b" \n"
# One "=" on either side; a section has "= =". A few lines of formulas look alike, but no blank
# lines stand around them.
_HEADING = re.compile(rb" = (?!= ).+(?<! =) = \n")


def load(config: "DataConfig", paths: CorpusPaths) -> Corpus:
    """Download the archive, and read each split article by article, byte for byte.

    `words` in the notes counts the held-out words with one end of line a line, as papers do:
    word perplexity is exp(total nats / words).

    Raises:
        ValueError: the archive cannot be had, or is not the published one.
        OSError: the cache cannot be written.
    """
    name = config.corpus
    archive = fetch(
        ARCHIVES[name], paths.downloads, addresses=config.addresses, progress=paths.progress
    )
    splits = {split: ReadAgain(partial(_articles, archive, name, split)) for split in SPLITS}
    words = {
        split: sum(count_words(document.text) for document in splits[split]) for split in SPLITS[1:]
    }
    return Corpus(name, splits, {"words": words})


def _articles(archive: Path, name: str, split: Split) -> Iterator[Document]:
    member = f"{name}/wiki.{split}.tokens"
    with open_member(archive, member, limit=LARGEST_MEMBER) as lines:
        for number, article in enumerate(cut_articles(lines)):
            yield Document(f"{split}/{number}", to_text(article))


def cut_articles(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Cut before the blank line before each article's heading; the parts are the whole text."""
    article: list[bytes] = []
    for line in lines:
        article.append(line)
        if len(article) > 3 and _starts_article(article[-3:]):
            yield b"".join(article[:-3])
            del article[:-3]
    if article:
        yield b"".join(article)


def _starts_article(three: list[bytes]) -> bool:
    before, heading, after = three
    return before == after == _BLANK and _HEADING.fullmatch(heading) is not None
