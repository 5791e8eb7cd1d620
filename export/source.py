"""What an exporter is given, and a folder that is written whole."""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data import Tokenizer
from model import Architecture, LanguageModel
from utils.files import make_durable, named


@dataclass(frozen=True)
class Source:
    """A model folder that was read and checked; `result` is its result.json, if there is one."""

    folder: Path
    architecture: Architecture
    model: LanguageModel
    tokenizer: Tokenizer
    result: Mapping[str, Any] | None


def check_target(target: Path, source: Path) -> None:
    """Raise ValueError where an export cannot be written to a folder without doing harm."""
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise ValueError(f"{target}: is no folder; give a new one")
    if target.is_dir() and any(target.iterdir()):
        raise ValueError(f"{target}: is not empty, and nothing is written over; give a new folder")
    if target.resolve().is_relative_to(source.resolve()):
        raise ValueError(f"{target}: lies in the model folder {source}; give a folder elsewhere")


@contextmanager
def folder_made_whole(target: Path) -> Iterator[Path]:
    """An empty folder beside the target, which takes its name in the end, or leaves no trace."""
    work = target.parent / f".{target.name}.{os.getpid()}.tmp"
    with named(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        work.mkdir()
        try:
            yield work
            for path in work.rglob("*"):
                make_durable(path)
            # Another one's files are not replaced: that fails unless the folder is empty.
            os.replace(work, target)
            make_durable(target.parent)
        finally:
            shutil.rmtree(work, ignore_errors=True)
