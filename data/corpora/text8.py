"""text8: 100 million letters a to z and spaces, from the same dump of Wikipedia as enwik8."""

from typing import TYPE_CHECKING

from data.corpora import hundred_million
from data.corpora.base import Corpus, Place
from data.download import Remote

if TYPE_CHECKING:
    from data.config import DataConfig

NAME = "text8"
ARCHIVE = Remote(
    "text8.zip",
    ("https://mattmahoney.net/dc/text8.zip",),
    sha256="a6640522afe85d1963ad56c05b0ede0a0c000dddc9671758a6cc09b7a38e5232",
    limit=31_344_016,
    size=31_344_016,
)


def load(config: "DataConfig", place: Place) -> Corpus:
    """The bytes of text8 (`hundred_million.load`)."""
    return hundred_million.load(NAME, ARCHIVE, config, place)
