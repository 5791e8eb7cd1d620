"""What is no UTF-8 is told from each other, with the remedy that works; what counts as a word."""

import gzip
import random
import zipfile
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


@pytest.mark.parametrize(
    "encoding", ["utf-16", "utf-16le", "utf-16be", "utf-32", "utf-32le", "utf-32be"]
)
@pytest.mark.parametrize("text", [PROSE, "plain\n", PROSE * 2000])
def test_wide_encodings_are_named_and_the_named_one_gives_the_text_back(
    encoding: str, text: str
) -> None:
    raw = text.encode(encoding)
    why = why_no_utf8(raw)
    assert why.endswith(f"; convert it with `iconv -f {encoding} -t utf-8`")
    assert raw.decode(encoding) == text


@pytest.mark.parametrize("text", ["\u041f\u0440\u0438\u0432\u0435\u0442 " * 9, "\u4e2d\u6587" * 9])
def test_a_byte_order_mark_names_utf16_of_any_script(text: str) -> None:
    for mark, encoding in ((b"\xff\xfe", "utf-16le"), (b"\xfe\xff", "utf-16be")):
        assert "iconv -f utf-16 " in (why_no_utf8(mark + text.encode(encoding)) or "")


def test_one_byte_encodings_keep_the_old_advice() -> None:
    for encoding in ("latin1", "cp1252"):
        why = why_no_utf8(PROSE.replace("\u201e", "").encode(encoding, errors="replace"))
        assert "byte 23 is 0xe4 (" in why
        assert "from the encoding it has, for example with `iconv -f latin1 -t utf-8`" in why


def test_binary_files_are_no_text_and_nothing_is_to_be_converted(tmp_path: Path) -> None:
    noise = random.Random(0).randbytes(4000)
    with zipfile.ZipFile(tmp_path / "x.docx", "w") as archive:
        archive.writestr("word/document.xml", PROSE)
    tokens = b"".join(number.to_bytes(2, "little") for number in range(2000))
    for raw, words in {
        gzip.compress(PROSE.encode()): "gzip-compressed; unpack it first",
        (tmp_path / "x.docx").read_bytes(): "a ZIP archive or an office document",
        b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n": "export its text",
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR": "a binary file (byte 0 is 0x89)",
        noise: "a binary file",
        b"\xff\xfe" + noise: "a binary file",  # no byte order mark, as a sound file may begin
        tokens: "a binary file",
    }.items():
        why = why_no_utf8(raw)
        assert why.startswith("is no text but ")
        assert words in why
        assert "iconv" not in why


def test_files_and_trees_say_so(tmp_path: Path) -> None:
    for number in range(120):
        (tmp_path / f"{number}.txt").write_text(PROSE, encoding="utf-8")
    (tmp_path / "wide.txt").write_bytes(PROSE.encode("utf-16le"))
    files = {"train": "0.txt", "valid": "wide.txt", "test": "2.txt"}
    own = DataConfig.model_validate({"corpus": "files", "files": files})
    with pytest.raises(ValueError, match=r"valid: .*wide\.txt: is UTF-16LE, .* -f utf-16le "):
        load_corpus(own, tmp_path)
    said: list[str] = []
    tree = {"folder": ".", "include": ["wide.txt"]}
    with pytest.raises(ValueError, match="1 of them are no UTF-8"):
        load_corpus(
            DataConfig.model_validate({"corpus": "tree", "tree": tree}), tmp_path, None, said.append
        )
    assert said == [
        f"data.tree: {tmp_path / 'wide.txt'}: left out, is UTF-16LE, not UTF-8; convert it with "
        "`iconv -f utf-16le -t utf-8`"
    ]


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
