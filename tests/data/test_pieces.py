"""Models of others: what they lose is found out and said, and a bad file is refused in a line."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece

from data import DataConfig, prepare
from data.tokenizers.sentencepiece import ExactPieces, LossyPieces, SentencePieceModel, load_given

from .models import EXACT, REPOSITORY_A, TEXT, given_model, ranked

BPE = {"model_type": "bpe", **EXACT}


def of_model(config: DataConfig, folder: Path, model: bytes, name: str = "x.model") -> DataConfig:
    (folder / name).write_bytes(model)
    return DataConfig.model_validate(
        config.model_dump() | {"tokenizer": {"kind": "given", "model": name}}
    )


def as_published(model: bytes, text: str) -> list[str]:
    """The pieces that SentencePiece itself makes of the lines of a text."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [
        processor.id_to_piece(i)
        for line in text.splitlines(keepends=True)
        for i in processor.encode(line)
    ]


@pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
def test_a_model_like_that_of_repository_a_keeps_its_pieces(
    own_files: DataConfig, tmp_path: Path, algorithm: str
) -> None:
    without_two_characters = TEXT.replace("\u2581", "").replace("4", "")
    model = given_model(without_two_characters, model_type=algorithm, **REPOSITORY_A)
    config = of_model(own_files, tmp_path, model)
    ready = prepare(config, tmp_path, tmp_path / "cache")
    tokenizer = ready.tokenizer
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    assert tokenizer.vocabulary_size == processor.vocab_size() + 1
    assert tokenizer.losses == (
        "characters are normalised",
        "extra spaces are removed",
        "what no piece covers becomes <unk>",
        "a space is put before every line",
    )
    assert tokenizer.byte_length_V is None
    assert (np.diff(ready.counts_V) <= 0).all()
    for split, text in (("train", TEXT * 3), ("valid", TEXT[40:]), ("test", TEXT[:90])):
        ids = ready.tokens[split]
        assert ids[0] == tokenizer.doc_id
        assert tokenizer.doc_id not in ids[1:]
        wanted = as_published(model, text)
        shown = [tokenizer.decode([i]) for i in ids[1:]]
        assert shown == [
            " \u2047 " if piece == "<unk>" else piece.replace("\u2581", " ") for piece in wanted
        ]
        assert ready.notes["unknown"][split] == wanted.count("<unk>")
        assert (ids == tokenizer.unknown_id).sum() == wanted.count("<unk>")
    assert ready.notes["unknown"]["train"] == 3
    assert tokenizer.decode(tokenizer.encode("The QUICK  fox\n")) == " the quick fox"


@pytest.mark.parametrize(
    ("options", "losses"),
    [
        ({}, ()),
        ({"add_dummy_prefix": False}, ()),
        ({"treat_whitespace_as_suffix": True}, ()),
        ({"user_defined_symbols": ["\n", "<doc>", " the", "\u2581quick"]}, ()),
        ({"normalization_rule_name": "nfkc"}, ("characters are normalised",)),
        ({"remove_extra_whitespaces": True}, ("extra spaces are removed",)),
        ({"byte_fallback": False}, ("what no piece covers becomes <unk>",)),
    ],
)
def test_what_a_model_loses_follows_from_its_rules(
    options: dict[str, Any], losses: tuple[str, ...]
) -> None:
    scheme = load_given(given_model(**BPE | options))
    assert isinstance(scheme, LossyPieces if losses else ExactPieces)
    tokenizer = ranked(scheme)
    prefix = ("a space is put before every line",) if losses else ()
    assert tokenizer.losses == losses + prefix
    hard = "fox  <doc> the\u2581quick\u212b\n\n \x00 " + TEXT
    assert (tokenizer.decode(tokenizer.encode(hard)) == hard) is (not losses)
    assert (tokenizer.unknown_id is None) is options.get("byte_fallback", True)


@pytest.mark.parametrize("split", ["train.txt", "valid.txt", "test.txt"])
def test_a_text_that_comes_back_changed_is_refused(
    own_files: DataConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, split: str
) -> None:
    # A model whose rules hide what it does.
    monkeypatch.setattr(SentencePieceModel, "losses", ())
    model = given_model(**BPE | {"normalization_rule_name": "nfkc"})
    with (tmp_path / split).open("a") as file:
        file.write("\u212b")
    with pytest.raises(ValueError, match="loses text though its rules say that it does not"):
        prepare(of_model(own_files, tmp_path, model), tmp_path, tmp_path / "cache")


WHOLE = given_model(**BPE)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"these are words\n", "is no SentencePiece model (16 bytes)"),
        (WHOLE[: len(WHOLE) // 2], "is no SentencePiece model"),
        (WHOLE + b"\x0a\x05\x0a\x01\xff\x18\x01", "is no SentencePiece model"),
    ],
)
def test_a_file_that_is_no_model_is_refused_in_one_line(
    own_files: DataConfig, tmp_path: Path, content: bytes, said: str
) -> None:
    config = of_model(own_files, tmp_path, content)
    with pytest.raises(ValueError, match="tokenizer") as caught:
        prepare(config, tmp_path, tmp_path / "cache")
    message = str(caught.value)
    assert message.startswith(f"data.tokenizer.model: {tmp_path / 'x.model'}: ")
    assert said in message
    assert "\n" not in message
    assert not (tmp_path / "cache").exists()
