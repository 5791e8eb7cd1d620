"""The tokenizer of an exported folder: its ids and its text are ours, on texts of all sorts."""

import random
import sysconfig
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import AutoTokenizer

from data import Tokenizer
from data.tokenizers import TOKENIZERS
from data.tokenizers.sentencepiece import train_pieces
from export.huggingface.tokenizer import converted, sample_texts, write_tokenizer
from tests.data.models import EXACT, TEXT, given_model, ranked

TEXTS = 10_000
MARK, EMOJI = "\u2581", "\U0001f468\u200d\U0001f469\u200d\U0001f467"
ODD = [
    "", " ", "  ", "\n", "\r\n", "\t", "\0", "\x01\x7f\x85", MARK, MARK * 2, f"a{MARK} b", EMOJI,
    "<doc>", "<unk>", "<0x41>", "<0x", "e\u0301", "\u00e9", "\u6f22\u5b57", "\ufeff", "\u200b",
    "\u2028", "\u0391\u03a3", "\u0130I", "self", "the", "    ", "0123",
]  # fmt: skip


@pytest.fixture(scope="module")
def text() -> str:
    """About a megabyte of real text."""
    folder, parts = Path(sysconfig.get_paths()["stdlib"]), []
    for path in sorted(folder.glob("*.py")):
        parts.append(path.read_text(encoding="utf-8", errors="replace"))
    return "".join(parts)[:1_000_000]


def texts(text: str) -> list[str]:
    """Stretches of real text, odd texts, runs, and all of them mixed."""
    draw, found = random.Random(0), [*ODD]
    found += [character * length for character in " \n=ax" for length in range(1, 120)]
    found += ["a" * 40_000, " " * 40_000, "x \n" * 20_000, "return " * 5000, "\n" * 40_000]
    while len(found) < TEXTS - 2000:
        start = draw.randrange(len(text) - 300)
        found.append(text[start : start + draw.randrange(1, 300)])
    while len(found) < TEXTS:
        found.append("".join(draw.choice(ODD) for _ in range(draw.randrange(12))))
    return found


def bpe(text: str, *, lower_case: bool = False) -> Tokenizer:
    folded = text.lower() if lower_case else text
    scheme = TOKENIZERS["bpe"].load(train_pieces("bpe", [folded], 1000), lower_case)
    unranked = Tokenizer(scheme)
    counts = np.bincount(unranked.encode(text[:200_000]), minlength=1000)
    return unranked.reranked(counts)[0]


def loaded(tokenizer: Tokenizer, folder: Path) -> Any:
    tokenizer.save(folder / "model")
    (folder / "out").mkdir()
    write_tokenizer(tokenizer, folder / "model", folder / "out")
    return AutoTokenizer.from_pretrained(folder / "out", trust_remote_code=True)


def same_ids(theirs: Any, own: Tokenizer, found: list[str]) -> None:
    assert len(set(found)) > 0.7 * len(found)
    for start in range(0, len(found), 1000):
        part = found[start : start + 1000]
        for one, ids in zip(part, theirs(part).input_ids, strict=True):
            assert ids == own.encode(one).tolist(), repr(one[:200])
            assert theirs.decode(ids) == own.decode(ids), repr(one[:200])


def test_bpe_gives_our_ids_on_ten_thousand_texts(text: str, tmp_path: Path) -> None:
    own = bpe(text)
    theirs = loaded(own, tmp_path)
    assert len(texts(text)) == TEXTS
    same_ids(theirs, own, texts(text))
    assert (len(theirs), theirs.padding_side) == (own.vocabulary_size, "left")
    doc = own.doc_id
    assert (theirs.bos_token_id, theirs.eos_token_id, theirs.pad_token_id) == (doc, doc, doc)
    assert theirs.decode([doc, *own.encode("a")], skip_special_tokens=True) == "a"


def test_bytes_give_our_ids(text: str, tmp_path: Path) -> None:
    own = ranked(TOKENIZERS["bytes"].load(b"", False))
    same_ids(loaded(own, tmp_path), own, texts(text)[:3000] + texts(text)[-1000:])


def test_lower_cased_bpe_gives_our_ids(text: str, tmp_path: Path) -> None:
    """A sigma that ends a word becomes another letter than elsewhere."""
    own = bpe(text, lower_case=True)
    greek = ["\u0391\u03a3", "\u03a3", "\u0391'\u03a3. \u0391\u03a3\u03a3A", "\u0391\u03a3\u0301b"]
    same_ids(loaded(own, tmp_path), own, [*texts(text)[:2000], *texts(text)[-1500:], *greek])


@pytest.mark.parametrize("prefix", [True, False])
def test_a_given_model_that_loses_nothing_gives_our_ids(tmp_path: Path, prefix: bool) -> None:
    model = given_model(model_type="bpe", add_dummy_prefix=prefix, **EXACT)
    own = ranked(TOKENIZERS["given"].load(model, False))
    same_ids(loaded(own, tmp_path), own, [TEXT, *ODD, *texts(TEXT * 9)[-3000:]])


@pytest.mark.parametrize(
    ("tokenizer", "words"),
    [
        (lambda: ranked(TOKENIZERS["unigram"].load(
            train_pieces("unigram", [TEXT * 3], 316), False)),
         "kind unigram cannot be exported: where several ways"),
        (lambda: ranked(TOKENIZERS["given"].load(given_model(), False)),
         "kind given cannot be exported, because it loses text: characters are normalised"),
        (lambda: ranked(TOKENIZERS["given"].load(given_model(
            model_type="bpe", user_defined_symbols=["return"], **EXACT), False)),
         "kind given cannot be exported: transformers gives '.*return.*' other ids"),
    ],
)  # fmt: skip
def test_what_transformers_gives_other_ids_is_refused(
    tmp_path: Path, tokenizer: Any, words: str
) -> None:
    made = tokenizer()
    made.save(tmp_path)
    with pytest.raises(ValueError, match=words):
        write_tokenizer(made, tmp_path, tmp_path)


def test_other_ids_are_seen(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = bpe(text[:100_000])
    own.save(tmp_path)
    assert len(list(sample_texts(own))) > 900
    monkeypatch.setattr("export.huggingface.tokenizer._merges", lambda score_of: iter(()))
    assert converted(own, tmp_path)
    with pytest.raises(
        ValueError, match=r"kind bpe cannot be exported: transformers gives .* other"
    ):
        write_tokenizer(own, tmp_path, tmp_path)
