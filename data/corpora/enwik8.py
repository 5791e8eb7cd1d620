"""enwik8: the first 100 million bytes of an English Wikipedia dump of 2006, XML and all."""

from typing import TYPE_CHECKING

from data.corpora import hundred_million
from data.corpora.base import Corpus, Place
from data.download import Remote

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
    """The bytes of enwik8 (`hundred_million.load`)."""
    return hundred_million.load(NAME, ARCHIVE, config, place)
