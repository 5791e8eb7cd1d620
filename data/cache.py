"""Folders that are whole or absent, also when two processes build the same one at once."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from utils.files import folder_made_whole, remove_temporary, sha256_of

INFO = "info.json"
# What a killed build of a day ago left; no other program calls a folder so.
_LEFT, _OLD_S = f".*-{'[0-9a-f]' * 16}.{'[0-9a-f]' * 8}.tmp", 24 * 3600.0


def default_cache() -> Path:
    """PARNAS_CACHE, or ~/.cache/parnas."""
    return Path(os.path.expanduser(os.environ.get("PARNAS_CACHE") or "~/.cache/parnas"))


def key_hash(key: dict[str, Any]) -> str:
    """Hash of everything that decides a folder's content."""
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()


def build_folder(final: Path, key: dict[str, Any], fill: Callable[[Path], dict[str, Any]]) -> None:
    """Fill a temporary sibling and rename it into place; a folder already there stays.

    `fill` writes files into the folder it is given and returns more entries of the sidecar INFO,
    which holds them beside the key and the files' hashes.
    """
    # A job that a cluster ends while it encodes leaves gigabytes.
    remove_temporary(final.parent, _LEFT, older_s=_OLD_S)
    try:
        with folder_made_whole(final) as work:
            entries = fill(work)
            files = {path.name: sha256_of(path) for path in sorted(work.iterdir())}
            content = json.dumps({"key": key, **entries, "files": files}, indent=1) + "\n"
            (work / INFO).write_text(content, encoding="utf-8")
    except OSError:
        # The loser of a race keeps the winner's folder.
        if not final.is_dir():
            raise
