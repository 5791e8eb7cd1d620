"""enwik8: the first 100 million bytes of an English Wikipedia dump of 2006, XML and all."""

from typing import TYPE_CHECKING

from data.corpora import hundred_million
from data.corpora.base import Corpus, Place
from data.download import Remote, fetch

if TYPE_CHECKING:
    from data.config import DataConfig

NAME = "enwik8"
ARCHIVE = Remote(
    "enwik8.zip",
    ("https://mattmahoney.net/dc/enwik8.zip", "https://data.deepai.org/enwik8.zip"),
    sha256="547994d9980ebed1288380d652999f38a14fe291a6247c157c3d33d4932534bc",
    limit=36_445_475,
    size=36_445_475,
)


def load(config: "DataConfig", place: Place) -> Corpus:
    """Download the archive and cut its bytes.

    Raises:
        ValueError: the archive cannot be had, or is not the published one.
        OSError: the cache cannot be written.
    """
    archive = fetch(ARCHIVE, place.downloads, addresses=config.addresses, progress=place.progress)
    return hundred_million.cut(archive, NAME)
