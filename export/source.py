"""What an exporter is given, and where it may write."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data import Tokenizer
from model import Architecture, LanguageModel


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
        raise ValueError(f"{target}: is inside the model folder {source}; give a folder elsewhere")
