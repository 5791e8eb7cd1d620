"""tree: whole files to one split by their path, links not followed, what is no text left out."""

import os
from pathlib import Path
from typing import Any

import pytest

from data import SPLITS, CorpusPaths, DataConfig, load_corpus, prepare
from data.corpora.base import hash_share
from data.corpora.local import matches

from .test_corpora import names, texts

FILES = 120


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "notes"
    for number in range(FILES):
        path = root / f"part{number % 3}" / f"note{number}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(f"# Note {number}\r\ncaf\u00e9\n".encode())
    (root / "top.md").write_text("top\n")
    return root


def config(**tree: Any) -> DataConfig:
    tree = {"folder": "notes", "include": ["**/*.md"]} | tree
    return DataConfig.model_validate(
        {"corpus": "tree", "tree": tree, "tokenizer": {"kind": "bytes"}}
    )


def test_every_file_is_whole_in_one_split_by_the_hash_of_its_path(folder: Path) -> None:
    corpus = load_corpus(config(), CorpusPaths(folder.parent))
    found = texts(corpus)
    assert len(found) == FILES + 1
    for path, text in found.items():
        assert text.encode() == (folder / path).read_bytes()
    before = names(corpus)
    for split, paths in before.items():
        assert paths == sorted(paths)
        for path in paths:
            share = hash_share(path)
            assert split == ("train" if share < 0.9 else "valid" if share < 0.95 else "test")
    # Neither the folder's own place nor another file matters.
    folder.rename(folder.parent / "moved")
    assert load_corpus(config(folder="moved"), CorpusPaths(folder.parent)).digest == corpus.digest
    (folder.parent / "moved/added.md").write_text("added")
    after = names(load_corpus(config(folder="moved"), CorpusPaths(folder.parent)))
    for split, paths in before.items():
        assert [path for path in after[split] if path != "added.md"] == paths


def test_a_text_that_changes_while_it_is_encoded_leaves_no_tokens(folder: Path) -> None:
    """Under the digest of the text before, they would be every later run's."""
    cache = folder.parent / "cache"

    def edited(line: str) -> None:
        for path in folder.rglob("*.md"):
            path.write_text(line)

    with pytest.raises(ValueError, match=r"tree: a text was changed while it was read; run it"):
        prepare(config(), folder.parent, cache, edited)
    assert not list(cache.iterdir())


def test_include_and_exclude_choose(folder: Path) -> None:
    (folder / "part1" / "deep").mkdir()
    (folder / "part1" / "deep" / "x.txt").write_text("deep")
    assert set(
        texts(load_corpus(config(exclude=["part1/**", "top.md"]), CorpusPaths(folder.parent)))
    ) == {f"part{i % 3}/note{i}.md" for i in range(FILES) if i % 3 != 1}
    both = load_corpus(config(include=["**/*.md", "**/deep/*.txt"]), CorpusPaths(folder.parent))
    assert len(texts(both)) == FILES + 2


def test_globs() -> None:
    fit = ["a.md **/*.md", "x/y/a.md **/*.md", "x/a.md x/*", "x/y/a.md x/**", "x/a.md **"]
    fit += ["x/y/z/a.md x/**/z/*.md", "x/z/a.md x/**/z/*.md"]
    others = ["x/y/a.md *.md", "x/y/a.md x/*", "x x/**", "x/a.md x/**/z/*.md", "x/B.md x/[ab].md"]
    assert [each for each in fit + others if matches(*each.split())] == fit


def test_runs_and_the_cache_below_the_folder_are_left_out(folder: Path) -> None:
    before = load_corpus(config(), CorpusPaths(folder.parent))
    said: list[str] = []
    for name in ("runs/one/search", "runs/two", "part1/cache/x"):
        (folder / name).mkdir(parents=True)
        (folder / name / "written.md").write_text(f"by a command: {name}\n")
    corpus = load_corpus(
        config(folder="."),
        CorpusPaths(
            folder,
            cache=folder / "part1/cache",
            progress=said.append,
            is_run=lambda path: path.parent.name == "runs",
        ),
    )
    assert corpus.digest == before.digest
    assert sorted(said) == [
        f"data.tree: a run folder or the cache is left out: {name}"
        for name in ("part1/cache", "runs/one", "runs/two")
    ]


def test_a_folder_that_is_itself_a_run_or_the_cache_is_refused(folder: Path) -> None:
    words = r"notes: is itself a run folder or the cache, whose files change .* another --run"
    with pytest.raises(ValueError, match=words):
        load_corpus(config(), CorpusPaths(folder.parent, is_run=lambda path: path == folder))
    with pytest.raises(ValueError, match=words):
        load_corpus(config(), CorpusPaths(folder.parent, cache=folder))


def test_links_and_what_is_no_text_are_left_out(folder: Path, tmp_path: Path) -> None:
    before = load_corpus(config(), CorpusPaths(tmp_path))
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.md").write_text("secret\n")
    (folder / "out").symlink_to(outside)
    (folder / "secret.md").symlink_to(outside / "secret.md")
    (folder / "twice.md").symlink_to(folder / "top.md")
    (folder / "loop").symlink_to(folder)
    (folder / "gone.md").symlink_to(folder / "nowhere")
    (folder / "latin.md").write_bytes(b"caf\xe9")
    (folder / "empty.md").write_bytes(b"")
    (folder / ".hidden.md").write_text("hidden")
    (folder / ".git").mkdir()
    (folder / ".git" / "config.md").write_text("hidden")
    os.mkfifo(folder / "pipe.md")
    corpus = load_corpus(config(), CorpusPaths(tmp_path))
    assert corpus.digest == before.digest
    assert corpus.notes["undecodable_files"] == ["latin.md"]


# The same lines as an editor, a converter or another system leaves them.
FORMS = {
    "lf": lambda text: text,
    "crlf": lambda text: text.replace("\n", "\r\n"),
    "blank behind": lambda text: text.replace("\n", " \n"),
    "byte order mark": lambda text: "\ufeff" + text,
    "blanks of no width": lambda text: text.replace("\n", "\u200b\n"),
}


@pytest.mark.parametrize("form", FORMS)
def test_files_of_equal_lines_stay_in_one_split(folder: Path, tmp_path: Path, form: str) -> None:
    for number in range(60):
        text = "the same in all\nalso here\n"
        path = folder / f"copy{number}.md"
        path.write_bytes((FORMS[form](text) if number % 2 else text).encode())
    kept = FORMS[form](text).removeprefix("\ufeff")
    assert texts(load_corpus(config(), CorpusPaths(tmp_path)))["copy1.md"] == kept
    found = names(load_corpus(config(), CorpusPaths(tmp_path)))
    with_copies = [split for split in SPLITS if any("copy" in path for path in found[split])]
    assert len(with_copies) == 1


def test_a_byte_order_mark_is_no_text(folder: Path, tmp_path: Path) -> None:
    texts_of = {split: f"of {split}\n" for split in SPLITS}
    for split, text in texts_of.items():
        (tmp_path / f"{split}.txt").write_text(f"\ufeff{text}", encoding="utf-8")
    paths = {split: f"{split}.txt" for split in SPLITS}
    own = DataConfig.model_validate({"corpus": "files", "files": paths})
    assert [*texts(load_corpus(own, CorpusPaths(tmp_path))).values()] == [*texts_of.values()]
    (folder / "marked.md").write_bytes(b"\xef\xbb\xbfmarked\n")
    assert texts(load_corpus(config(), CorpusPaths(tmp_path)))["marked.md"] == "marked\n"


def test_mistakes_are_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"data\.tree\.folder: .*lost: no such folder; relative"):
        load_corpus(config(folder="lost"), CorpusPaths(tmp_path))
    (folder / "only.bin").write_bytes(b"\xff")
    with pytest.raises(ValueError, match=r"matches \*\.bin \(1 that match are no UTF-8"):
        load_corpus(config(include=["*.bin"]), CorpusPaths(tmp_path))
    with pytest.raises(ValueError, match=r"tree has no text in its (train|valid) split"):
        load_corpus(config(include=["top.md"]), CorpusPaths(tmp_path))
