"""What an experiment's file and the command line's --set say, and where each key stands."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from utils.strict_yaml import Document, Key, YamlError, read_text, read_yaml
from utils.text import masked, shorten, visible
from utils.validation import Said, dotted, show

_AFTER_THE_FILE = 10**9  # more than any line number


class ExperimentError(ValueError):
    """The experiment cannot be used; `problems` holds one line for each reason."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = [visible(problem) for problem in problems]
        super().__init__("\n".join(self.problems))


class ExperimentSource:
    """The values of a file with the overrides put over them, and the origin of every key.

    Args:
        path: the YAML file.
        overrides: texts like `search.tau.end=0.1`; the value is YAML, a list is given whole.
        sections: every section of an experiment, and whether it may be left out.

    Raises:
        ExperimentError: the file is no YAML or no mapping.
    """

    def __init__(self, path: Path, overrides: Sequence[str], sections: Mapping[str, bool]) -> None:
        document = _read_document(path, list(sections))
        # Per key the rank that sorts its problems and the text that stands before them.
        self._origin: dict[Key, tuple[int, str]] = {
            key: (line, f"{path}:{line}") for key, line in document.line_of.items() if key
        } | {(): (1, f"{path}:1")}
        self._problems = [
            (problem.line, _line(f"{path}:{problem.line}", problem.key, problem.text))
            for problem in document.problems
        ]
        # A section that is left empty is an empty mapping where the experiment may lack it.
        self.data: dict[str, Any] = {
            name: {} if section is None and sections.get(name) else section
            for name, section in (document.value or {}).items()
        }
        for place, text in enumerate(overrides):
            if line := self._override(text, _AFTER_THE_FILE + place):
                self._problems.append((_AFTER_THE_FILE + place, line))

    def lines(self, errors: Sequence[Said]) -> list[str]:
        """Every problem found by reading, and every one of `errors`, as lines in file order."""
        placed = list(self._problems)
        for key, words in errors:
            rank, origin = self._origin_of(key)
            placed.append((rank, _line(origin, key, words)))
        return list(dict.fromkeys(line for _, line in sorted(placed, key=lambda pair: pair[0])))

    def _override(self, text: str, rank: int) -> str | None:
        """Put one `a.b=value` over the data; return the line to print where that is impossible."""
        origin = "--set " + shorten(" ".join(masked(text).split()), 200)
        name, equals, value_text = text.partition("=")
        key: Key = tuple(name.strip().split("."))
        if not equals or not all(key):
            return f"{origin}: expected KEY=VALUE, for example search.tau.end=0.1"
        try:
            document = read_yaml(value_text)
        except YamlError as error:
            return _line(origin, key, f"the value is not YAML: {error.text}")
        self._problems += [
            (rank, _line(origin, (*key, *problem.key), problem.text))
            for problem in document.problems
        ]
        here: Any = self.data
        for depth, part in enumerate(key[:-1], start=1):
            if here.get(part) is None:
                here[part] = {}
                self._origin[key[:depth]] = (rank, origin)
            here = here[part]
            if not isinstance(here, dict):
                above = dotted(key[:depth])
                return _line(origin, key, f"{above} is {show(here)}, which has no keys")
        here[str(key[-1])] = document.value
        # What the file said of this key and of all below it counts no more.
        above_it = {old: at for old, at in self._origin.items() if old[: len(key)] != key}
        self._origin = above_it | {key: (rank, origin)}
        return None

    def _origin_of(self, key: Key) -> tuple[int, str]:
        # Of the key itself, or of the nearest key around it that stands somewhere.
        while key not in self._origin:
            key = key[:-1]
        return self._origin[key]


def _read_document(path: Path, sections: Sequence[str]) -> Document:
    if path.is_dir():
        raise ExperimentError([f"{path}: a directory; give a YAML file"])
    try:
        document = read_yaml(read_text(path))
    except YamlError as error:
        position = f"{error.line}" if error.column is None else f"{error.line}:{error.column}"
        raise ExperimentError([f"{path}:{position}: {shorten(error.text, 1000)}"]) from None
    if document.value is not None and not isinstance(document.value, Mapping):
        expected = f"expected the sections {', '.join(sections)}"
        found = show(document.value)
        raise ExperimentError([f"{path}:1: no experiment file: {expected}; found {found}"])
    return document


def _line(origin: str, key: Key, words: str) -> str:
    words = shorten(words, 1000)
    return f"{origin}: {dotted(key)}: {words}" if key else f"{origin}: {words}"
