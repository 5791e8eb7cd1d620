"""A tiny trained tokenizer and a tiny corpus of three files."""

from pathlib import Path

import pytest

from data import DataConfig
from data.bpe import BpeTokenizer, train_bpe

TEXT = (
    "def add(first, second):\n    return first + second\n\n\n"
    "# The quick brown fox says <unk> and <doc> to 1234 lazy dogs \u2581 twice.\n"
    "class Fox:\r\n\tdef jump(self, dogs):\n        return self.over(dogs) # caf\u00e9\n"
)


@pytest.fixture(scope="session")
def bpe() -> BpeTokenizer:
    """Ranked by the counts of its own training text, as `prepare` does it."""
    unranked = BpeTokenizer(train_bpe([TEXT * 3], 340))
    counts_V = [0] * unranked.vocabulary_size
    for i in [unranked.doc_id, *unranked.encode(TEXT * 3).tolist()]:
        counts_V[i] += 1
    return unranked.reranked(counts_V)[0]


@pytest.fixture
def own_files(tmp_path: Path) -> DataConfig:
    """An experiment over three small files in tmp_path."""
    for split, text in (("train", TEXT * 3), ("valid", TEXT[40:]), ("test", TEXT[:90])):
        (tmp_path / f"{split}.txt").write_bytes(text.encode())
    return DataConfig.model_validate(
        {
            "corpus": "files",
            "files": {"train": "train.txt", "valid": "valid.txt", "test": "test.txt"},
            "tokenizer": {"vocabulary": 340},
        }
    )
