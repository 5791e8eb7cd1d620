"""Tokenizers lose nothing, never invent `<doc>`, and rank by frequency."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data import Tokenizer, load_tokenizer
from data.bpe import _LONGEST, BpeTokenizer, train_bpe
from data.byte_level import ByteTokenizer
from data.raw import to_text

from .conftest import TEXT

HARD = [
    "",
    "\u2581",
    "a\u2581 \u2581\n\u2581",
    "\x00",
    "\x01\x7f\x85\u2028\ufeff",
    "\r\n\r\n",
    "\n\n  \n\t\n",
    "<doc>",
    "<unk><s></s><pad>",
    "<0x0A><0xE2>",
    "\u2585\u2047\ufffd",
    " lead and trail ",
    "e\u0301 \u00e9 \u212b \U0001f600\U0010ffff",
    "1234567890" * 9,
]
ANY_TEXT = st.lists(st.one_of(st.text(), st.sampled_from(HARD), st.sampled_from(TEXT.split(" "))))
properties = settings(max_examples=150, deadline=None, derandomize=True)


def assert_lossless(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert tokenizer.byte_length_V[ids].sum() == len(text.encode())
    assert tokenizer.doc_id not in ids


@pytest.mark.parametrize("text", HARD)
def test_hard_texts_come_back_exactly(bpe: BpeTokenizer, text: str) -> None:
    assert_lossless(bpe, text)
    assert_lossless(ByteTokenizer(), text)


@given(parts=ANY_TEXT)
@properties
def test_any_text_comes_back_exactly_from_bpe(bpe: BpeTokenizer, parts: list[str]) -> None:
    assert_lossless(bpe, "".join(parts))


@given(raw=st.binary(), text=st.text())
@properties
def test_bytes_that_are_no_text_come_back_exactly(bpe: BpeTokenizer, raw: bytes, text: str) -> None:
    mixed = text.encode() + raw + text.encode()
    for tokenizer in (bpe, ByteTokenizer()):
        ids = tokenizer.encode(to_text(mixed))
        assert tokenizer.decode_bytes(ids) == mixed
        assert tokenizer.doc_id not in ids


def test_halves_of_a_cut_character_join_again(bpe: BpeTokenizer) -> None:
    raw = "caf\u00e9 \u2581 \U0001f600".encode()
    for tokenizer in (bpe, ByteTokenizer()):
        for cut in range(len(raw) + 1):
            ids = [*tokenizer.encode(to_text(raw[:cut])), *tokenizer.encode(to_text(raw[cut:]))]
            assert tokenizer.decode_bytes(ids) == raw


@given(text=st.text())
@properties
def test_any_text_comes_back_exactly_from_bytes(text: str) -> None:
    assert_lossless(ByteTokenizer(), text)


def test_every_character_of_the_first_plane_comes_back(bpe: BpeTokenizer) -> None:
    text = "".join(chr(i) for i in range(0x10000) if not 0xD800 <= i < 0xE000)
    assert_lossless(bpe, text)
    assert_lossless(bpe, " ".join(text[:0x3000]))


@given(parts=ANY_TEXT, more=ANY_TEXT)
@properties
def test_cutting_after_a_newline_changes_no_id(
    bpe: BpeTokenizer, parts: list[str], more: list[str]
) -> None:
    one, other = "".join(parts) + "\n", "".join(more)
    apart = np.concatenate([bpe.encode(one), bpe.encode(other)])
    assert np.array_equal(bpe.encode(one + other), apart)


def test_a_line_longer_than_the_cut_comes_back_and_is_trained_on(bpe: BpeTokenizer) -> None:
    line = "".join(f"\u00e9uvw{chr(97 + i % 26)}{chr(97 + i % 17)} " for i in range(_LONGEST))
    assert_lossless(bpe, line)
    trained = BpeTokenizer(train_bpe([line, "abc"], 340))
    assert len(trained.encode("\u00e9uvw" * 10)) <= len(bpe.encode("\u00e9uvw" * 10)) / 2


def test_byte_lengths_are_those_of_the_decoded_pieces(bpe: BpeTokenizer) -> None:
    for tokenizer in (bpe, ByteTokenizer()):
        for i in range(tokenizer.vocabulary_size):
            assert len(tokenizer.decode_bytes([i])) == tokenizer.byte_length_V[i]
        assert tokenizer.byte_length_V[tokenizer.doc_id] == 0
        assert (tokenizer.byte_length_V == 0).sum() == 1


def test_decode_drops_doc(bpe: BpeTokenizer) -> None:
    ids = bpe.encode("fox")
    assert bpe.decode([bpe.doc_id, *ids, bpe.doc_id]) == "fox"


def test_ids_of_another_vocabulary_are_refused(bpe: BpeTokenizer) -> None:
    with pytest.raises(ValueError, match="vocabulary has 0 to 339"):
        bpe.decode([3, 340])
    with pytest.raises(ValueError, match="ids from -1"):
        bpe.decode([-1])


def test_ranks_follow_counts_and_ties_keep_their_order() -> None:
    counts_V = np.zeros(257, dtype=np.int64)
    counts_V[[ord("b"), ord("a"), ord("z"), 256]] = [5, 5, 9, 7]
    ranked, new_V = ByteTokenizer().reranked(counts_V)
    assert ranked.decode([0, 2, 3]) == "zab"
    assert ranked.doc_id == 1
    assert np.array_equal(new_V[ByteTokenizer().encode("zab")], ranked.encode("zab"))
    assert np.array_equal(ranked.encode("\x00"), [4])


@pytest.mark.parametrize("kind", ["bpe", "bytes"])
def test_reranking_twice_composes(bpe: BpeTokenizer, kind: str) -> None:
    once: Tokenizer = bpe if kind == "bpe" else ByteTokenizer(np.roll(np.arange(257), 5))
    again, new_V = once.reranked(np.roll(np.arange(once.vocabulary_size), 7))
    assert np.array_equal(new_V[once.encode(TEXT)], again.encode(TEXT))
    assert again.doc_id == new_V[once.doc_id]
    assert again.decode(again.encode(TEXT)) == TEXT
    assert again.digest != once.digest


def test_vocabulary_size_is_what_was_asked_for_with_doc(bpe: BpeTokenizer) -> None:
    assert bpe.vocabulary_size == len(bpe.byte_length_V) == 340
    assert ByteTokenizer().vocabulary_size == 257


def test_training_twice_gives_the_same_digest(bpe: BpeTokenizer) -> None:
    one, other = (BpeTokenizer(train_bpe([TEXT * 3], 340)) for _ in range(2))
    assert one.digest == other.digest != bpe.digest
    assert BpeTokenizer(train_bpe([TEXT * 3], 330)).digest != one.digest


def test_a_vocabulary_larger_than_the_text_allows_names_both_numbers() -> None:
    with pytest.raises(ValueError, match=r"vocabulary: 4096 ids .* at most \d+; set it to at most"):
        train_bpe([TEXT], 4096)
    with pytest.raises(ValueError, match="use more text or kind: bytes"):
        train_bpe(["ab"], 300)


def test_the_largest_vocabulary_that_the_message_names_works() -> None:
    with pytest.raises(ValueError, match="at most") as caught:
        train_bpe([TEXT], 4096)
    largest = int(str(caught.value).split("at most ")[1].split(";")[0])
    assert BpeTokenizer(train_bpe([TEXT], largest)).vocabulary_size == largest


def test_a_vocabulary_smaller_than_the_characters_names_both_numbers() -> None:
    many = "".join(chr(i) for i in range(0x4E00, 0x4F00))
    with pytest.raises(ValueError, match=r"vocabulary: 300 ids .* alone need \d{3}; set it above"):
        train_bpe([many], 300)


@pytest.mark.parametrize("kind", ["bpe", "bytes"])
def test_a_saved_tokenizer_loads_as_the_same(bpe: BpeTokenizer, kind: str, tmp_path: Path) -> None:
    tokenizer: Tokenizer = bpe if kind == "bpe" else ByteTokenizer(np.arange(257)[::-1])
    tokenizer.save(tmp_path)
    loaded = load_tokenizer(tmp_path)
    assert loaded.digest == tokenizer.digest
    assert loaded.doc_id == tokenizer.doc_id
    assert np.array_equal(loaded.encode(TEXT), tokenizer.encode(TEXT))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, r"tokenizer\.json: version: "),
        ({"kind": "words"}, r"tokenizer\.json: kind: "),
        ({"surprise": 1}, r"tokenizer\.json: surprise: "),
        ({"ranks": [0, 1]}, r"tokenizer\.model: ranks are not .* 0 to 339"),
        ({"ranks": [*range(339), 338]}, r"tokenizer\.model: ranks are not"),
        ({"ranks": [*range(340)]}, r"tokenizer\.model: pieces and ranks have digest"),
    ],
)
def test_a_changed_tokenizer_file_is_refused_by_name(
    bpe: BpeTokenizer, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    bpe.save(tmp_path)
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ValueError, match=message):
        load_tokenizer(tmp_path)


def test_damaged_tokenizer_files_are_refused_by_name(bpe: BpeTokenizer, tmp_path: Path) -> None:
    bpe.save(tmp_path)
    model = (tmp_path / "tokenizer.model").read_bytes()
    (tmp_path / "tokenizer.model").write_bytes(model[: len(model) // 2])
    with pytest.raises(ValueError, match=r"tokenizer\.model"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(train_bpe([TEXT * 2 + "other other"], 340))
    with pytest.raises(ValueError, match="damaged or of two tokenizers"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(ValueError, match=r"tokenizer\.json: content: "):
        load_tokenizer(tmp_path)


def test_missing_tokenizer_files_are_an_os_error_with_the_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json"):
        load_tokenizer(tmp_path)
