"""Token files: exact, ranked by training counts, and refused where they are damaged."""

import os
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from data import (
    SPLITS,
    TOKENIZERS,
    DataConfig,
    Split,
    Tokenizer,
    TokenizerConfig,
    prepare,
    train_tokenizer,
)
from data.cache import build_folder

from .models import EXACT, TEXT, given_model


def with_tokenizer(config: DataConfig, **tokenizer: object) -> DataConfig:
    return DataConfig.model_validate(config.model_dump() | {"tokenizer": tokenizer})


def of_kind(config: DataConfig, folder: Path, kind: str) -> DataConfig:
    """The corpus with a tokenizer of this kind that loses nothing."""
    if kind == "given":
        (folder / "own.model").write_bytes(given_model(**EXACT))
        return with_tokenizer(config, kind="given", model="own.model")
    sizes = {"bpe": {"vocabulary": 340}, "unigram": {"vocabulary": 316}}
    return with_tokenizer(config, kind=kind, **sizes.get(kind, {}))


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_every_split_decodes_to_its_file(own_files: DataConfig, tmp_path: Path, kind: str) -> None:
    config = of_kind(own_files, tmp_path, kind)
    ready = prepare(config, tmp_path, tmp_path / "cache")
    assert ready.tokenizer.kind == kind
    assert config.tokenizer.ids in (None, ready.tokenizer.vocabulary_size)
    assert (config.tokenizer.ids is None) == (kind == "given")
    assert ready.tokenizer.losses == ()
    assert ready.notes["unknown"] == dict.fromkeys(SPLITS, 0)
    counts_V = np.bincount(ready.tokens["train"], minlength=ready.tokenizer.vocabulary_size)
    assert np.array_equal(ready.counts_V, counts_V)
    assert (np.diff(counts_V) <= 0).all(), "ids are ranked by training counts"
    for split in SPLITS:
        raw = (tmp_path / f"{split}.txt").read_bytes()
        tokens = ready.tokens[split]
        assert tokens.dtype == np.uint16
        assert tokens[0] == ready.tokenizer.doc_id
        assert (tokens == ready.tokenizer.doc_id).sum() == 1
        assert ready.tokenizer.decode_bytes(tokens) == raw
        assert ready.tokenizer.byte_length_V[tokens].sum() == len(raw)
        assert np.array_equal(tokens[1:], ready.tokenizer.encode(raw.decode()))


def test_the_tokenizer_learns_from_the_training_split_only(
    own_files: DataConfig, tmp_path: Path
) -> None:
    before = prepare(own_files, tmp_path, tmp_path / "cache")
    for split in ("valid", "test"):
        (tmp_path / f"{split}.txt").write_text(f"{split} words " * 50)
    after = prepare(own_files, tmp_path, tmp_path / "cache")
    assert after.corpus.digest != before.corpus.digest
    assert after.folder != before.folder
    assert after.tokenizer.digest == before.tokenizer.digest
    assert np.array_equal(after.counts_V, before.counts_V)


def test_doc_stands_before_every_document_and_nowhere_else(tmp_path: Path) -> None:
    config = DataConfig.model_validate({"corpus": "pydoc-topics", "tokenizer": {"kind": "bytes"}})
    ready = prepare(config, tmp_path, tmp_path)
    for split in SPLITS:
        tokens, doc = ready.tokens[split], ready.tokenizer.doc_id
        assert tokens[0] == doc
        assert (tokens == doc).sum() == ready.notes["documents"][split]
        assert len(tokens) == ready.notes["tokens"][split]
        assert ready.tokenizer.byte_length_V[tokens].sum() == ready.notes["bytes"][split]


def test_chunked_encoding_gives_the_ids_of_the_whole_text(
    own_files: DataConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = prepare(own_files, tmp_path, tmp_path / "whole")
    monkeypatch.setattr("data.tokens._CHUNK", 7)
    told: list[str] = []
    chunked = prepare(own_files, tmp_path, tmp_path / "chunked", told.append)
    for split in SPLITS:
        assert np.array_equal(whole.tokens[split], chunked.tokens[split])
    assert np.array_equal(whole.counts_V, chunked.counts_V)
    assert any("encoding train" in line for line in told)
    assert chunked.tokenizer.byte_length_V[chunked.tokens["test"]].sum() == 90


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_large_text_trains_the_tokenizer_on_an_even_part_of_it(
    own_files: DataConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    config = of_kind(own_files, tmp_path, kind)
    line = TEXT.replace("\n", " ")
    (tmp_path / "train.txt").write_text("".join(f"line {i} {line}\n" for i in range(1000)))
    whole = prepare(config, tmp_path, tmp_path / "cache")
    size = whole.notes["bytes"]["train"]
    smaller = replace(TOKENIZERS[kind], sample_bytes=size // 4)
    monkeypatch.setitem(TOKENIZERS, kind, smaller)
    seen: list[str] = []

    def train(config: TokenizerConfig, texts: Iterable[str], base: Path) -> Tokenizer:
        seen.extend(texts)
        return train_tokenizer(config, seen)

    monkeypatch.setattr("data.tokens.train_tokenizer", train)
    told: list[str] = []
    part = prepare(config, tmp_path, tmp_path / "cache", told.append)
    assert "training the tokenizer on 25% of the training split, evenly spread" in told[0]
    assert part.folder != whole.folder
    taken = sum(len(text.encode()) for text in seen)
    assert abs(taken - size / 4) < size / 4 / 32
    numbers = np.array([int(text.split()[1]) for text in seen])
    assert len(numbers) > 50
    assert np.diff(numbers).max() <= 22
    assert numbers[-1] > 975


def test_validation_and_test_end_where_the_config_says(
    own_files: DataConfig, tmp_path: Path
) -> None:
    whole = prepare(own_files, tmp_path, tmp_path / "cache")
    config = own_files.model_copy(update={"validation_tokens": 9, "test_tokens": 10**6})
    cut = prepare(config, tmp_path, tmp_path / "cache")
    assert cut.folder == whole.folder
    assert np.array_equal(cut.tokens["valid"], whole.tokens["valid"][:9])
    assert len(cut.tokens["test"]) == len(whole.tokens["test"])


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("place", [7, -1])
def test_one_changed_id_is_refused_by_name(
    own_files: DataConfig, tmp_path: Path, split: Split, place: int
) -> None:
    prepared = prepare(own_files, tmp_path, tmp_path / "cache")
    path = prepared.folder / f"{split}.bin"
    ids = np.array(prepared.tokens[split])
    ids[place] = 1 if ids[place] != 1 else 2
    path.write_bytes(ids.tobytes())
    with pytest.raises(ValueError, match=rf"damaged \({split}.bin changed.*delete this folder"):
        prepare(own_files, tmp_path, tmp_path / "cache")


def test_a_build_removes_what_was_killed_long_ago(tmp_path: Path) -> None:
    one, other = (f".x-{letter * 16}.0123abcd.tmp" for letter in "ab")
    for name, age_s in ((one, 90_000), (other, 80_000), (".mine.tmp", 9e6)):
        (tmp_path / name / "part").mkdir(parents=True)
        os.utime(tmp_path / name, (time.time() - age_s,) * 2)
    build_folder(tmp_path / "x", {}, lambda _: {})
    assert {path.name for path in tmp_path.iterdir()} == {other, ".mine.tmp", "x"}


def test_a_folder_that_appears_during_the_build_wins(tmp_path: Path) -> None:
    def slow(folder: Path) -> dict[str, object]:
        build_folder(tmp_path / "x", {"a": 1}, lambda _: {"of": "winner"})
        return {"of": "loser"}

    build_folder(tmp_path / "x", {"a": 1}, slow)
    assert '"of": "winner"' in (tmp_path / "x/info.json").read_text()
    assert [path.name for path in tmp_path.rglob("*")] == ["x", "info.json"]
