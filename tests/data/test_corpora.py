"""Corpora: splits that share nothing, the same on every call, exact bytes, clear refusals."""

from pathlib import Path

import pytest

from data import SPLITS, CorpusPaths, DataConfig, count_words, load_corpus
from data.corpora import Corpus, Document, local as builtin
from data.corpora.local import _group

HERE = Path()


@pytest.fixture(scope="module")
def stdlib() -> Corpus:
    return load_corpus(DataConfig(corpus="python-stdlib"), CorpusPaths(HERE))


def every_name(corpus: Corpus) -> list[str]:
    return [document.name for split in SPLITS for document in corpus.documents(split)]


def texts(corpus: Corpus) -> dict[str, str]:
    return {d.name: d.text for split in SPLITS for d in corpus.documents(split)}


def names(corpus: Corpus) -> dict[str, list[str]]:
    return {split: [document.name for document in corpus.documents(split)] for split in SPLITS}


def test_stdlib_splits_share_no_file_and_are_the_same_again(stdlib: Corpus) -> None:
    again = load_corpus(DataConfig(corpus="python-stdlib"), CorpusPaths(HERE))
    assert again.digest == stdlib.digest
    assert names(again) == names(stdlib)
    every = every_name(stdlib)
    assert len(every) == len(set(every))
    assert all(names(stdlib)[split] == sorted(names(stdlib)[split]) for split in SPLITS)


def write_library(folder: Path) -> Path:
    for number in range(120):
        path = folder / f"package{number % 3}" / f"module{number}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"# {number}\n" + "value = 1\n" * 1000)
    return folder


def test_only_library_text_is_taken_byte_for_byte_and_undecodable_files_are_counted(
    tmp_path: Path,
) -> None:
    library = write_library(tmp_path)
    before = builtin.read_library(library)
    for path in ("test/a.py", "x/tests/b.py", "idlelib/idle_test/c.py", "site-packages/d.py",
                 "encodings/e.py", "pydoc_data/f.py", "lib2to3/pgen2/g.py", "h.txt",
                 "_sysconfigdata__linux.py"):  # fmt: skip
        (library / path).parent.mkdir(parents=True, exist_ok=True)
        (library / path).write_text("not library text\n")
    (library / "latin.py").write_bytes(b"# caf\xe9\n")
    corpus = builtin.read_library(library)
    assert names(corpus) == names(before)
    assert corpus.digest == before.digest
    assert corpus.notes["undecodable_files"] == ["latin.py"]
    raw = b"\xef\xbb\xbfx = 1\r\ny = '\xc3\xa9'\r\x0c\n\x00"
    (library / "lib2to3/pygram.py").write_bytes(raw)
    after = builtin.read_library(library)
    known = texts(after)
    assert known.pop("lib2to3/pygram.py").encode() == raw
    # Another file moves no file to another split.
    for split, paths in names(after).items():
        assert [path for path in paths if path in known] == names(before)[split]


def test_digest_sees_names_bytes_and_splits() -> None:
    def digest(*splits: tuple[str, str]) -> str:
        documents = {s: [Document(n, t)] for s, (n, t) in zip(SPLITS, splits, strict=True)}
        return Corpus("x", documents, {}).digest

    plain = digest(("a", "text"), ("b", "more"), ("c", "last"))
    assert plain == digest(("a", "text"), ("b", "more"), ("c", "last"))
    assert plain != digest(("at", "ext"), ("b", "more"), ("c", "last"))
    assert plain != digest(("a", "tex"), ("b", "more"), ("c", "last"))
    assert plain != digest(("b", "more"), ("a", "text"), ("c", "last"))


def test_overlap_counts_long_held_out_lines_that_stand_in_training() -> None:
    long, other, short = "x" * 60, "y" * 60, "z" * 59
    documents = {
        "train": [Document("t", f"{long}\n"), Document("u", f"{short}\n")],
        "valid": [Document("v", f"{long}\n{other}\n{long}\n{short}\n{other}")],
        "test": [Document("s", f"{other}\n")],
    }
    found = Corpus("x", documents, {}).notes["lines_found_in_train"]  # type: ignore[arg-type]
    assert found == {"valid": {"lines": 4, "found": 2}, "test": {"lines": 1, "found": 0}}


def test_topics_load_and_share_no_long_line_with_training() -> None:
    corpus = load_corpus(DataConfig(corpus="pydoc-topics"), CorpusPaths(HERE))
    assert sum(corpus.notes["bytes"].values()) > 300_000
    for split in ("valid", "test"):
        assert corpus.notes["documents"][split] > 1
        assert corpus.notes["lines_found_in_train"][split]["found"] == 0
    every = every_name(corpus)
    assert len(every) == len(set(every))


def test_documents_that_share_a_long_line_are_grouped_through_each_other() -> None:
    one, other = "x" * 60, "y" * 60
    texts = {"a": one, "b": "short", "c": other, "d": f"{other}\n{one}", "e": "short"}
    groups = _group([Document(name, text) for name, text in texts.items()])
    assert groups == {"a": "a", "b": "b", "c": "a", "d": "a", "e": "e"}


def test_unusable_files_are_refused(own_files: DataConfig, tmp_path: Path) -> None:
    path = tmp_path / "valid.txt"
    path.unlink()
    lost = r"data\.files\.valid: .*valid\.txt: no such file; relative paths start from"
    with pytest.raises(ValueError, match=lost):
        load_corpus(own_files, CorpusPaths(tmp_path))
    for content, message in {
        b"": r"valid\.txt: is empty; give a file with text",
        b"caf\xc3\xa9 \xff": r"valid\.txt: is not UTF-8, byte 6 is 0xff .*iconv",
        "utf-16".encode("utf-16-le"): r"valid\.txt: is not UTF-8, more than a tenth .*zeros",
        b"caf\xc3": r"byte 3 is 0xc3 \(unexpected end of data\)",
    }.items():
        path.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            load_corpus(own_files, CorpusPaths(tmp_path))
    path.write_bytes((tmp_path / "test.txt").read_bytes())
    with pytest.raises(ValueError, match=r"two splits are the same text, so nothing would be held"):
        load_corpus(own_files, CorpusPaths(tmp_path))


def test_words_stand_between_white_space_and_an_end_of_line_is_one() -> None:
    words = {"": 0, "one": 1, "no-break\u00a0space": 2, "\n\n": 2, "   ": 0}
    words |= {" \n = One = \n \n one , two . \n": 11, "two words\r\nand\ttwo more \n\n": 8}
    assert {text: count_words(text) for text in words} == words
