"""What is no UTF-8 is told from each other, with the remedy that works; what counts as a word."""

import gzip
from pathlib import Path

import pytest

from data import DataConfig, count_words, load_corpus
from data.text import why_no_utf8

PROSE = (
    "Ein Satz mit Umlauten: \u00e4\u00f6\u00fc, \u201eso\u201c \u2013 und fort.\r\n\tNoch einer.\n"
)


def test_utf8_is_text_with_whatever_characters() -> None:
    for text in (PROSE, "", "\0", "a\0b", "\x01\x02\x03" * 9, "\ufeffmark", "\u4e2d\u6587" * 50):
        assert why_no_utf8(text.encode()) is None


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_a_byte_order_mark_names_the_encoding_that_gives_the_text_back(encoding: str) -> None:
    raw = PROSE.encode(encoding)
    assert why_no_utf8(raw) == (
        f"is {encoding.upper()}; convert it with `iconv -f {encoding} -t utf-8`"
    )
    assert raw.decode(encoding) == PROSE


def test_what_is_no_utf8_is_told_with_its_remedy() -> None:
    for raw, words in {
        PROSE.replace("\u201e", "").encode("cp1252"): "byte 23 is 0xe4 (",
        gzip.compress(PROSE.encode()): "gzip-compressed; unpack it first",
        ("A plain line of English.\n" * 3).encode("utf-16-le"): "-f utf-16le -t utf-8",
        b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n": "export its text",
    }.items():
        assert words in (why_no_utf8(raw) or "")


def test_files_and_trees_say_so(tmp_path: Path) -> None:
    for number in range(120):
        (tmp_path / f"{number}.txt").write_text(PROSE, encoding="utf-8")
    (tmp_path / "wide.txt").write_bytes(PROSE.encode("utf-16"))
    files = {"train": "0.txt", "valid": "wide.txt", "test": "2.txt"}
    own = DataConfig.model_validate({"corpus": "files", "files": files})
    with pytest.raises(ValueError, match=r"valid: .*wide\.txt: is UTF-16; .* -f utf-16 "):
        load_corpus(own, tmp_path)
    said: list[str] = []
    tree = {"folder": ".", "include": ["wide.txt"]}
    with pytest.raises(ValueError, match="1 of them are no UTF-8"):
        load_corpus(
            DataConfig.model_validate({"corpus": "tree", "tree": tree}), tmp_path, None, said.append
        )
    assert said[0].startswith(f"data.tree: {tmp_path / 'wide.txt'}: left out, is UTF-16; convert")


@pytest.mark.parametrize(
    ("text", "words", "plain"),
    [
        ("", 0, 0),
        ("one", 1, 1),
        (" \n = One = \n \n one , two . \n", 11, 7),
        ("two words\r\nand\ttwo more \n\n", 8, 5),
        ("no-break\u00a0space", 2, 2),
        ("\n\n", 2, 0),
        ("   ", 0, 0),
    ],
)
def test_words_stand_between_white_space_and_an_end_of_line_is_one(
    text: str, words: int, plain: int
) -> None:
    assert count_words(text) == words
    assert count_words(text, line_ends=False) == plain
