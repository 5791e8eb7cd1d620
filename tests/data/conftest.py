"""Tiny tokenizers of every kind that loses nothing, a tiny corpus of three files, a server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from data import DataConfig, Tokenizer
from data.tokenizers import TOKENIZERS
from data.tokenizers.sentencepiece import train_pieces

from .models import EXACT, TEXT, given_model, ranked
from .server import Server, serving


@pytest.fixture(scope="session")
def bpe() -> Tokenizer:
    """Ranked by the counts of its own training text, as `prepare` does it."""
    return ranked(TOKENIZERS["bpe"].load(train_pieces("bpe", [TEXT * 3], 340), False))


@pytest.fixture(scope="session")
def lossless(bpe: Tokenizer) -> dict[str, Tokenizer]:
    """One of every kind; the given ones put a space before texts, and know no newline."""
    unigram = TOKENIZERS["unigram"].load(train_pieces("unigram", [TEXT * 3], 316), False)
    models = {name: given_model(model_type=name, **EXACT) for name in ("bpe", "unigram")}
    return {
        "bpe": bpe,
        "unigram": ranked(unigram),
        "bytes": ranked(TOKENIZERS["bytes"].load(b"", False)),
        "given": ranked(TOKENIZERS["given"].load(models["bpe"], False)),
        "given unigram": ranked(TOKENIZERS["given"].load(models["unigram"], False)),
    }


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


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A web server of this machine, which no proxy stands before."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serving() as running:
        yield running
