"""The user's own text: three files, or a folder of files."""

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from itertools import combinations, starmap, zip_longest
from operator import eq
from pathlib import Path
from typing import TYPE_CHECKING

from data.corpora.base import (
    SPLITS,
    Corpus,
    CorpusPaths,
    Document,
    ReadAgain,
    Split,
    readable_path,
    split_by_hash,
)
from data.text import bare_lines, to_utf8_text, why_no_utf8

if TYPE_CHECKING:
    from data.config import DataConfig

FILES = "files"
TREE = "tree"
TRAIN_SHARE, VALID_SHARE = 0.90, 0.05
_MOST_NAMED = 5


def load_files(config: "DataConfig", paths: CorpusPaths) -> Corpus:
    """Read the three UTF-8 files of `data.files`, one document each, byte for byte."""
    assert config.files is not None, "the config's own check lets no corpus: files without paths"
    splits: dict[Split, list[Document]] = {}
    for split in SPLITS:
        key = f"data.files.{split}"
        path = readable_path(paths.base, getattr(config.files, split), key, "file")
        text = to_utf8_text(path.read_bytes(), f"{key}: {path}")
        splits[split] = [Document(f"{split}.txt", text)]
    for one, other in combinations(SPLITS, 2):
        if all(starmap(eq, zip_longest(*(bare_lines(splits[s][0].text) for s in (one, other))))):
            raise ValueError(
                f"data.files: {one} ({getattr(config.files, one)}) and "
                f"{other} ({getattr(config.files, other)}) are the same text, so nothing "
                f"would be held out; give each split its own text"
            )
    return Corpus(FILES, splits, {"paths": config.files.model_dump()})


def load_tree(config: "DataConfig", paths: CorpusPaths) -> Corpus:
    """Read a folder's files, split by a hash of their relative paths.

    Files of equal lines go to one split together, by the hash of the first path among them.
    Files that are no UTF-8, empty ones and links are left out and counted; hidden ones are no text
    of the user's. Run folders and the cache are left out whole, for each command would change the
    text.
    """
    assert config.tree is not None, "the config's own check lets no corpus: tree without a folder"
    root = readable_path(paths.base, config.tree.folder, "data.tree.folder", "folder")
    if paths.is_written_to(root):
        raise ValueError(
            f"data.tree.folder: {root}: is itself a run folder or the cache, whose files change "
            "with every command; give a folder of texts, or another --run"
        )
    links: list[str] = []
    runs: list[str] = []
    wanted = [
        path
        for path in sorted(_files(root, paths, links, runs))
        if any(matches(path, glob) for glob in config.tree.include)
        and not any(matches(path, glob) for glob in config.tree.exclude)
    ]
    if runs:
        paths.progress(f"data.tree: {root}: run folders and the cache are left out: {_named(runs)}")
    digests, twins, undecodable, empty = _look_at(root, wanted)
    for path, why in list(undecodable.items())[:_MOST_NAMED]:
        paths.progress(f"data.tree: {root / path}: left out, {why}")
    if len(undecodable) > _MOST_NAMED:
        paths.progress(f"data.tree: {len(undecodable) - _MOST_NAMED} more files are no UTF-8")
    if not digests:
        raise ValueError(
            f"data.tree: {root} has no text file that matches {', '.join(config.tree.include)} "
            f"({len(wanted)} matched, {len(undecodable)} of them are no UTF-8, {len(empty)} are "
            f"empty); change include or exclude"
        )
    first: dict[bytes, str] = {}
    groups = {path: first.setdefault(twin, path) for path, twin in twins.items()}
    splits = {
        split: ReadAgain(partial(_read, root, names, digests))
        for split, names in split_by_hash(groups, TRAIN_SHARE, VALID_SHARE).items()
    }
    notes = {
        "tree": config.tree.model_dump(mode="json"),
        "undecodable_files": list(undecodable),
        "empty_files": len(empty),
        "links": len(links),
        "run_folders": len(runs),
    }
    return Corpus(TREE, splits, notes)


def matches(path: str, glob: str) -> bool:
    """Match a relative posix path with a glob; `**` is any number of folders, also none."""
    return _fits(path.split("/"), glob.split("/"))


def _fits(parts: Sequence[str], globs: Sequence[str]) -> bool:
    if not globs:
        return not parts
    if globs[0] == "**":
        rest = globs[1:] or ["*"]  # at the end it stands for every file below
        return any(_fits(parts[i:], rest) for i in range(len(parts)))
    return bool(parts) and fnmatchcase(parts[0], globs[0]) and _fits(parts[1:], globs[1:])


def _files(root: Path, paths: CorpusPaths, links: list[str], runs: list[str]) -> Iterator[str]:
    def refuse(error: OSError) -> None:
        raise error

    for folder, subfolders, files in os.walk(root, onerror=refuse):
        here = Path(folder).relative_to(root)
        if folder != str(root) and paths.is_written_to(Path(folder)):
            runs.append(here.as_posix())
            subfolders.clear()
            continue
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        for name in (*subfolders, *files):
            path = (here / name).as_posix()
            mode = (root / path).lstat().st_mode
            if stat.S_ISLNK(mode):
                links.append(path)
            elif stat.S_ISREG(mode) and not name.startswith("."):
                yield path


def _named(paths: Sequence[str]) -> str:
    more = len(paths) - _MOST_NAMED
    return ", ".join(paths[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _look_at(
    root: Path, paths: Sequence[str]
) -> tuple[dict[str, bytes], dict[str, bytes], dict[str, str], list[str]]:
    """Digests of the files and of their lines, which other files are no UTF-8, the empty files."""
    digests: dict[str, bytes] = {}
    twins: dict[str, bytes] = {}
    undecodable: dict[str, str] = {}
    empty = []
    for path in paths:
        raw = (root / path).read_bytes()
        if why := why_no_utf8(raw):
            undecodable[path] = why
        elif raw:
            digests[path] = hashlib.sha256(raw).digest()
            lines = "\n".join(bare_lines(raw.decode()))
            twins[path] = hashlib.sha256(lines.encode()).digest()
        else:
            empty.append(path)
    return digests, twins, undecodable, empty


def _read(root: Path, paths: Sequence[str], digests: Mapping[str, bytes]) -> Iterator[Document]:
    for path in paths:
        raw = (root / path).read_bytes()
        if hashlib.sha256(raw).digest() != digests[path]:
            raise ValueError(f"data.tree: {root / path} changed while it was read; run again")
        yield Document(path, raw.decode())
