"""Corpora that others publish: WikiText-2 and -103, enwik8 and text8.

WikiText are Wikipedia's good articles as words (Merity et al. 2016); enwik8 and text8 are the first
100 million bytes of an English Wikipedia dump of 2006. An archive is downloaded under a temporary
name and checked by its hash; a member of it is read as a stream, never unpacked to a path.
"""

import os
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from data.corpora.base import SPLITS, Corpus, CorpusPaths, Document, ReadAgain, Split
from data.text import count_words, to_text
from utils.files import make_durable, sha256_of

if TYPE_CHECKING:
    from data.config import DataConfig

# Longest silence of a server.
TIMEOUT_S = 30.0
_BLOCK = 1 << 20
_AGENT = "parnas (https://arxiv.org/abs/2009.04534)"


@dataclass(frozen=True)
class Remote:
    """A file that others publish: the addresses in the order to try, the hash of its content.

    No more bytes than `limit` are ever taken.
    """

    name: str
    addresses: tuple[str, ...]
    sha256: str
    limit: int


_HOSTS = (
    "https://wikitext.smerity.com",
    "https://s3.amazonaws.com/research.metamind.io/wikitext",
)
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
    # XML and all.
    "enwik8": Remote(
        "enwik8.zip",
        ("https://mattmahoney.net/dc/enwik8.zip", "https://data.deepai.org/enwik8.zip"),
        sha256="547994d9980ebed1288380d652999f38a14fe291a6247c157c3d33d4932534bc",
        limit=36_445_475,
    ),
    # Letters a to z and spaces.
    "text8": Remote(
        "text8.zip",
        ("https://mattmahoney.net/dc/text8.zip",),
        sha256="a6640522afe85d1963ad56c05b0ede0a0c000dddc9671758a6cc09b7a38e5232",
        limit=31_344_016,
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
    archive = fetch(ARCHIVES[config.corpus], paths.downloads, paths.progress)
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
    archive = fetch(ARCHIVES[config.corpus], paths.downloads, paths.progress)
    splits = {split: ReadAgain(partial(_part, archive, config.corpus, split)) for split in SPLITS}
    return Corpus(config.corpus, splits, {})


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
        between_blanks = len(article) > 3 and article[-3] == article[-1] == _BLANK
        if between_blanks and _HEADING.fullmatch(article[-2]):
            yield b"".join(article[:-3])
            del article[:-3]
    if article:
        yield b"".join(article)


def _part(archive: Path, member: str, split: Split) -> Iterator[Document]:
    before = sum(HUTTER_SIZES[other] for other in SPLITS[: SPLITS.index(split)])
    with open_member(archive, member) as stream:
        stream.seek(before)
        yield Document(split, to_text(stream.read(HUTTER_SIZES[split])))


def fetch(remote: Remote, folder: Path, progress: Callable[[str], None]) -> Path:
    """The checked file, which is downloaded unless it is there; one put there by hand is used.

    ValueError where a file of another content lies there, or no address gave the file.
    """
    from http.client import HTTPException  # with urllib 50 ms, for those who download alone

    final = folder / remote.name
    if final.exists():
        # Never removed, since somebody may have put it there.
        if sha256_of(final) != remote.sha256:
            raise ValueError(
                f"{final}: its SHA-256 is not {remote.sha256}; delete it and run again, or put the "
                "right file there"
            )
        return final
    folder.mkdir(parents=True, exist_ok=True)
    failures: list[str] = []
    temporary = final.with_name(f".{final.name}.{os.getpid()}.tmp")
    for address in remote.addresses:
        progress(f"{remote.name}: from {address}, at most {remote.limit / 1e6:,.1f} MB")
        try:
            _download(remote, address, temporary, progress)
            make_durable(temporary)
            os.replace(temporary, final)
            return final
        except (OSError, HTTPException, ValueError) as error:
            failures.append(f"  {address}: {error}")
            progress(f"{remote.name}:{failures[-1]}")
        finally:
            temporary.unlink(missing_ok=True)
    lines = [
        f"{remote.name} is not here and could not be downloaded:",
        *failures,
        f"By hand, on a machine with a network: get it from one of these, put it at {final}",
        f"(SHA-256 {remote.sha256}), and run the same command again.",
    ]
    raise ValueError("\n".join(lines))


def _download(
    remote: Remote, address: str, temporary: Path, progress: Callable[[str], None]
) -> None:
    """Write what an address gives to a temporary name; ValueError where it is not the file."""
    import urllib.request

    request = urllib.request.Request(address, headers={"User-Agent": _AGENT})
    done, told = 0, 0
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as body, temporary.open("wb") as file:
        while block := body.read(_BLOCK):
            file.write(block)
            done += len(block)
            if done > remote.limit:
                raise ValueError(f"sent more than {remote.limit:,} bytes")
            if 10 * done // remote.limit > told:
                told = 10 * done // remote.limit
                progress(f"{remote.name}: {done / 1e6:,.1f} MB")
    if sha256_of(temporary) != remote.sha256:
        raise ValueError(f"sent another file: {done:,} bytes, not of the published SHA-256")


@contextmanager
def open_member(archive: Path, member: str) -> Iterator[BinaryIO]:
    """Read one member of a zip file, whose hash was checked, as a stream."""
    with zipfile.ZipFile(archive) as opened, opened.open(member) as stream:
        yield cast(BinaryIO, stream)
