"""Damaged tokenizer folders: a ValueError or OSError that names a file."""

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from data import load_tokenizer
from data.tokenizers import TOKENIZERS, Tokenizer
from data.tokenizers.sentencepiece import train_pieces
from tests.damage import no_files

from .models import TEXT

JSON, MODEL = "tokenizer.json", "tokenizer.model"


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    texts = {"model": TEXT * 3, "other": TEXT * 2 + "other other"}
    return {name: train_pieces("bpe", [text], 340) for name, text in texts.items()}


def bpe(model: bytes) -> Tokenizer:
    return Tokenizer(TOKENIZERS["bpe"].load(model, False))


@pytest.fixture
def folder(tmp_path: Path, files: dict[str, bytes]) -> Path:
    bpe(files["model"]).save(tmp_path)
    return tmp_path


def refusal(folder: Path) -> str:
    with pytest.raises((ValueError, OSError)) as caught:
        load_tokenizer(folder)
    assert type(caught.value) is ValueError or isinstance(caught.value, OSError)
    text = str(caught.value)
    assert JSON in text or MODEL in text
    assert len(text) < 1000
    return text


def test_every_flipped_bit_is_seen(folder: Path) -> None:
    draw = random.Random(0)
    for name in (MODEL, JSON):
        raw = (folder / name).read_bytes()
        for _ in range(60):
            broken = bytearray(raw)
            broken[draw.randrange(len(raw) - 1)] ^= 1 << draw.randrange(8)
            (folder / name).write_bytes(broken)
            same = name == JSON and is_same(raw, bytes(broken))
            if not same:
                refusal(folder)
        (folder / name).write_bytes(raw)
    assert load_tokenizer(folder).vocabulary_size == 340


def is_same(raw: bytes, broken: bytes) -> bool:
    """Whether only blanks differ."""
    try:
        return bool(json.loads(raw) == json.loads(broken))
    except ValueError:
        return False


def test_cut_files_are_refused(folder: Path) -> None:
    for name in (MODEL, JSON):
        raw = (folder / name).read_bytes()
        for keep in (0, 1, 2, 100, len(raw) // 2, len(raw) - 3):
            (folder / name).write_bytes(raw[:keep])
            assert name in refusal(folder)
        (folder / name).write_bytes(raw)


@pytest.mark.parametrize(
    "change",
    [
        {"version": True}, {"version": None}, {"kind": "bytes"}, {"kind": 3},
        {"vocabulary_size": 341}, {"vocabulary_size": 10**30},
        {"vocabulary_size": -1}, {"vocabulary_size": 340.0}, {"digest": "0" * 64}, {"digest": 3},
        {"digest": "x" * 5000}, {"ranks": 3}, {"ranks": []}, {"ranks": [10**30] * 340},
        {"ranks": [2**63] * 340}, {"ranks": [-1] * 340}, {"ranks": [0] * 340},
        {"ranks": [0.5] * 340}, {"ranks": [True] * 340}, {"ranks": [None] * 340},
        {"ranks": [[0]] * 340}, {"ranks": [float("nan")] * 340}, {"ranks": [*range(1, 341)]},
        {"ranks": [*range(339, -1, -1)]}, {"ranks": [*range(341)], "vocabulary_size": 341},
        {"ranks": {"0": 1}}, {"model_sha256": "0" * 64}, {"model_sha256": 3},
        {"\x1b[1m": 1}, {"x" * 5000: 1},
    ],
    ids=range(30),
)  # fmt: skip
def test_a_file_that_says_something_else_is_refused(folder: Path, change: dict[str, Any]) -> None:
    change_file(folder, change)
    refusal(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 1}, "json: version: "),
        ({"version": 3}, "json: version: "),
        ({"kind": "words"}, "json: kind: must be one of bpe, .* found 'words'"),
        ({"surprise": 1}, "json: surprise: "),
        ({"ranks": [0, 1], "vocabulary_size": 2}, "model: ranks are not .* 0 to 339"),
        ({"ranks": [0, 1]}, "json: vocabulary_size: 340, but there are 2 ranks"),
        ({"ranks": [*range(339), 338]}, "model: ranks are not"),
        ({"ranks": [*range(340)]}, "model: pieces and ranks have digest"),
        ({"lower_case": True}, "model: pieces and ranks have digest"),
        ({"kind": "unigram"}, "model: pieces and ranks have digest"),
        ({"kind": "given", "lower_case": True}, "model: .* cannot be lower-cased"),
    ],
)
def test_what_is_wrong_is_named(folder: Path, change: dict[str, Any], message: str) -> None:
    tokenizer = load_tokenizer(folder)
    tokenizer.reranked(range(340))[0].save(folder)
    change_file(folder, change)
    assert re.search(rf"tokenizer\.{message}", refusal(folder))


def change_file(folder: Path, change: dict[str, Any]) -> None:
    path = folder / JSON
    path.write_text(json.dumps(json.loads(path.read_text()) | change))


def test_texts_that_are_no_tokenizer_are_refused(folder: Path) -> None:
    path = folder / JSON
    text = path.read_text()
    twice = text.replace('"version": 2', '"version": 2, "version": 2')
    for other in (
        "[" * 100_000, "[]]", "null", "[]", '"x"', '{"ranks": ' * 10_000,
        text.replace("{", '{"kind": "bpe", '), twice, "9" * 10_000, text[:-2] + ",}",
    ):  # fmt: skip
        path.write_text(other)
        assert JSON in refusal(folder)


def test_the_model_of_another_tokenizer_is_refused(folder: Path, files: dict[str, bytes]) -> None:
    (folder / MODEL).write_bytes(files["other"])
    assert "damaged or of two tokenizers" in refusal(folder)
    # Not even where the older tokenizer.json knows nothing of the model's bytes.
    content = json.loads((folder / JSON).read_text())
    del content["model_sha256"]
    (folder / JSON).write_text(json.dumps(content))
    assert "damaged or of two tokenizers" in refusal(folder)
    (folder / MODEL).write_bytes(files["model"])
    assert load_tokenizer(folder).digest == content["digest"]


def test_a_bit_that_decides_nothing_is_seen_too(folder: Path, files: dict[str, bytes]) -> None:
    """The digest is of what decides the ids; the model's own hash is of every byte."""
    raw, digest = files["model"], bpe(files["model"]).digest
    for place in range(len(raw) - 400, len(raw)):
        changed = raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :]
        try:
            if bpe(changed).digest != digest:
                continue
        except ValueError:
            continue
        (folder / MODEL).write_bytes(changed)
        assert "not the file" in refusal(folder)
        return
    raise AssertionError("every bit decides something")


@pytest.mark.parametrize("name", [JSON, MODEL])
def test_what_is_no_file_is_refused_and_waited_for_by_nobody(folder: Path, name: str) -> None:
    for _ in no_files(folder / name):
        refusal(folder)


def test_a_byte_tokenizer_of_a_bpe_one_is_refused(folder: Path, tmp_path: Path) -> None:
    Tokenizer(TOKENIZERS["bytes"].load(b"", False)).save(tmp_path / "bytes")
    path = tmp_path / "bytes" / JSON
    whole = path.read_text()
    for change in ({"ranks": [0, 1]}, {"kind": "bpe"}, {"digest": "0"}):
        change_file(path.parent, change)
        refusal(path.parent)
        path.write_text(whole)
    load_tokenizer(tmp_path / "bytes")
