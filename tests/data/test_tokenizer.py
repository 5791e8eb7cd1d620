"""Tokenizers lose nothing, never invent `<doc>`, and rank by frequency: laws of every kind."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from data import TOKENIZERS, Tokenizer, load_tokenizer
from data.text import to_text
from data.tokenizers.sentencepiece import load_given, train_pieces

from .models import REPOSITORY_A, TEXT, given_model, ranked

# A law is asked of every kind; of `given` with both algorithms.
KINDS = [*TOKENIZERS, "given unigram"]
TRAINED = ["bpe", "unigram"]
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
properties = settings(max_examples=60, deadline=None, derandomize=True)
every_kind = pytest.mark.parametrize("kind", KINDS)


def trained(algorithm: str, texts: list[str], vocabulary: int) -> Tokenizer:
    model = train_pieces(algorithm, texts, vocabulary)
    return Tokenizer(TOKENIZERS[algorithm].load(model, False))


def byte_tokenizer(rank_V: object = None) -> Tokenizer:
    return Tokenizer(TOKENIZERS["bytes"].load(b"", False), rank_V)  # type: ignore[arg-type]


def assert_lossless(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.losses == ()
    assert tokenizer.decode(ids) == text
    assert tokenizer.byte_length_V[ids].sum() == len(text.encode())
    assert tokenizer.doc_id not in ids


@every_kind
@given(parts=ANY_TEXT)
@properties
def test_any_text_comes_back_exactly(
    lossless: dict[str, Tokenizer], kind: str, parts: list[str]
) -> None:
    assert_lossless(lossless[kind], "".join(parts))


@pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
def test_spaces_come_back_from_a_model_that_never_saw_one(algorithm: str) -> None:
    words = [f"{a}{b}{c}\n" for a in "kstrmn" for b in "aeiou" for c in ("n", "l", "ndo", "rta")]
    tokenizer = trained(algorithm, ["".join(words) * 5], 300)
    for text in (" ", "ab  ax", "kan kel\n\u2581 \u2581\n ", "  " * 9, *HARD):
        assert_lossless(tokenizer, text)


@every_kind
@given(raw=st.binary(), text=st.text())
@properties
def test_bytes_that_are_no_text_come_back_exactly(
    lossless: dict[str, Tokenizer], kind: str, raw: bytes, text: str
) -> None:
    mixed = text.encode() + raw + text.encode()
    ids = lossless[kind].encode(to_text(mixed))
    assert lossless[kind].decode_bytes(ids) == mixed
    assert lossless[kind].doc_id not in ids


@every_kind
@given(parts=ANY_TEXT, more=ANY_TEXT)
@properties
def test_cutting_after_a_newline_changes_no_id(
    lossless: dict[str, Tokenizer], kind: str, parts: list[str], more: list[str]
) -> None:
    one, other = "".join(parts) + "\n", "".join(more)
    tokenizer = lossless[kind]
    apart = np.concatenate([tokenizer.encode(one), tokenizer.encode(other)])
    assert np.array_equal(tokenizer.encode(one + other), apart)


@every_kind
def test_byte_lengths_are_those_of_the_decoded_pieces_and_doc_has_none(
    lossless: dict[str, Tokenizer], kind: str
) -> None:
    tokenizer = lossless[kind]
    length_V = tokenizer.byte_length_V
    for i in range(tokenizer.vocabulary_size):
        assert len(tokenizer.decode_bytes([i])) == length_V[i]
    # The given models have <s> and </s>, which no text becomes.
    assert (length_V == 0).sum() == (3 if kind.startswith("given") else 1)
    assert length_V[tokenizer.doc_id] == 0
    assert tokenizer.decode([tokenizer.doc_id, *tokenizer.encode("fox"), tokenizer.doc_id]) == "fox"


def test_ranks_follow_counts_and_ties_keep_their_order() -> None:
    counts_V = np.zeros(257, dtype=np.int64)
    counts_V[[ord("b"), ord("a"), ord("z"), 256]] = [5, 5, 9, 7]
    ranked, new_V = byte_tokenizer().reranked(counts_V)
    assert ranked.decode([0, 2, 3]) == "zab"
    assert ranked.doc_id == 1
    assert np.array_equal(new_V[byte_tokenizer().encode("zab")], ranked.encode("zab"))
    assert np.array_equal(ranked.encode("\x00"), [4])


@pytest.mark.parametrize("kind", TRAINED)
def test_a_vocabulary_larger_than_the_text_allows_names_the_largest_that_works(kind: str) -> None:
    wanted = r"vocabulary: 4096 ids .* at most \d+; set it to at most"
    with pytest.raises(ValueError, match=wanted) as caught:
        train_pieces(kind, [TEXT], 4096)
    largest = int(str(caught.value).split("at most ")[1].split(";")[0])
    assert trained(kind, [TEXT], largest).vocabulary_size == largest
    with pytest.raises(ValueError, match="use more text or kind: bytes"):
        train_pieces(kind, ["ab"], 300)


@pytest.mark.parametrize("kind", [*KINDS, "lossy"])
def test_a_saved_tokenizer_loads_as_the_same(
    lossless: dict[str, Tokenizer], kind: str, tmp_path: Path
) -> None:
    lossy = ranked(load_given(given_model(**REPOSITORY_A))) if kind == "lossy" else None
    tokenizer = lossy or lossless[kind]
    tokenizer.save(tmp_path)
    loaded = load_tokenizer(tmp_path)
    for name in ("kind", "digest", "doc_id", "unknown_id", "losses"):
        assert getattr(loaded, name) == getattr(tokenizer, name)
    assert (loaded.losses == ()) == (kind != "lossy")
    assert np.array_equal(loaded.encode(TEXT), tokenizer.encode(TEXT))


@pytest.mark.parametrize("kind", TRAINED)
def test_lower_casing_folds_text_and_is_a_loss(kind: str, tmp_path: Path) -> None:
    model = train_pieces(kind, [TEXT.lower() * 3], 310)
    as_it_is = Tokenizer(TOKENIZERS[kind].load(model, False))
    lower = Tokenizer(TOKENIZERS[kind].load(model, True))
    text = "The Quick \u0130 \udcc3 FOX\n\u2581 ODYSSEUS \u03a3\u0391\u03a3\n"
    assert np.array_equal(lower.encode(text), as_it_is.encode(text.lower()))
    assert lower.decode_bytes(lower.encode(text)) == text.lower().encode(errors="surrogateescape")
    assert lower.losses == ("text is lower-cased",)
    assert lower.byte_length_V is None
    assert lower.digest != as_it_is.digest
    lower.save(tmp_path)
    loaded = load_tokenizer(tmp_path)
    assert (loaded.digest, loaded.losses) == (lower.digest, lower.losses)
    assert np.array_equal(loaded.encode(text), lower.encode(text))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "words"}, r"json: kind: must be one of bpe, .* found 'words'"),
        ({"ranks": [0, 1]}, r"model: ranks are not .* 0 to 339"),
        ({"ranks": [*range(339, -1, -1)]}, r"model: pieces and ranks have digest"),
        ({"lower_case": True}, r"model: pieces and ranks have digest"),
    ],
)
def test_a_tokenizer_of_a_strange_folder_is_checked(
    bpe: Tokenizer, tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    bpe.save(tmp_path)
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ValueError, match=rf"tokenizer\.{said}"):
        load_tokenizer(tmp_path)
