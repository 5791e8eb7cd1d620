"""Folders that are whole or absent, also when two processes build the same one at once."""

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from utils.files import make_durable, named, write_whole

INFO = "info.json"


def default_cache() -> Path:
    """PARNAS_CACHE, or ~/.cache/parnas."""
    return Path(os.path.expanduser(os.environ.get("PARNAS_CACHE") or "~/.cache/parnas"))


@contextmanager
def cache_errors(cache: Path) -> Iterator[None]:
    """Let an OSError below the cache say how another cache is chosen."""
    try:
        yield
    except OSError as error:
        if error.filename is None or not Path(os.fsdecode(error.filename)).is_relative_to(cache):
            raise
        message = f"{error.strerror}; PARNAS_CACHE names another folder for what is built"
        raise OSError(error.errno, message, error.filename) from error


def key_hash(key: dict[str, Any]) -> str:
    """Hash of everything that decides a folder's content."""
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()


def build_folder(final: Path, key: dict[str, Any], fill: Callable[[Path], dict[str, Any]]) -> None:
    """Fill a temporary sibling and rename it into place; a folder already there stays.

    `fill` writes files into the folder it is given and returns more entries of the sidecar INFO,
    which holds them beside the key and the files' hashes.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    work = final.with_name(f".{final.name}.{uuid.uuid4().hex[:8]}.tmp")
    with named(final, keep_names=True):
        work.mkdir()
        try:
            entries = fill(work)
            files = {path.name: sha256_of(path) for path in sorted(work.iterdir())}
            # Before the rename, which must not outlive the content in a crash.
            for name in files:
                make_durable(work / name)
            content = json.dumps({"key": key, **entries, "files": files}, indent=1) + "\n"
            write_whole(work / INFO, content)
            try:
                os.rename(work, final)
            except OSError:
                # The loser of a race keeps the winner's folder.
                if not final.is_dir():
                    raise
        finally:
            shutil.rmtree(work, ignore_errors=True)


def sha256_of(path: Path) -> str:
    """Hash of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
