"""Where the values of an experiment come from: a YAML file and the `--set` texts over it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiment_file import why_no_experiment, why_no_yaml
from utils.strict_yaml import MAX_DEPTH, Document, Key, YamlError, is_torn, read_text, read_yaml
from utils.text import masked, shorten
from utils.validation import Said, dotted, show

_AFTER_THE_FILE = 10**9  # more than any line number


class ExperimentError(ValueError):
    """The experiment cannot be used; `problems` holds one line for each reason."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = [_printable(problem) for problem in problems]
        super().__init__("\n".join(self.problems))


class Source:
    """The values of a file with the overrides put over them, and the origin of every key.

    Attributes:
        data: the merged values; a section that is left empty is an empty mapping.
    """

    def __init__(
        self,
        path: Path,
        overrides: Sequence[str],
        sections: Sequence[str],
        may_be_empty: Sequence[str],
    ) -> None:
        """Read the file and the overrides.

        Args:
            path: the YAML file.
            overrides: `a.b=value` texts.
            sections: the names of all sections.
            may_be_empty: those that, left empty, are an empty mapping.

        Raises:
            ExperimentError: the file is no YAML or no mapping.
            OSError: the file cannot be read.
        """
        self._file = str(path)
        # Per key the rank that sorts its problems and the text that stands before them.
        self._origin: dict[Key, tuple[int, str]] = {(): (1, f"{path}:1")}
        self._problems: list[tuple[int, str]] = []
        self._unread: set[Key] = set()
        value = self._read_file(path, sections, overridden=bool(overrides))
        self.data: dict[str, Any] = {
            name: {} if section is None and name in may_be_empty else section
            for name, section in value.items()
        }
        for place, text in enumerate(overrides):
            if line := self._override(text, _AFTER_THE_FILE + place):
                self._problems.append((_AFTER_THE_FILE + place, line))

    def lines(self, said: Sequence[Said]) -> list[str]:
        """Every problem found by reading, and every one of `said`, as lines in file order."""
        placed = list(self._problems)
        for key, words in said:
            if key in self._unread:
                continue
            rank, origin = self._origin_of(key)
            placed.append((rank, _line(origin, key, words)))
        return list(dict.fromkeys(line for _, line in sorted(placed, key=lambda pair: pair[0])))

    def _read_file(
        self, path: Path, sections: Sequence[str], *, overridden: bool
    ) -> dict[str, Any]:
        if path.is_dir():
            raise ExperimentError([f"{self._file}: a directory; give a YAML file"])
        text = ""
        try:
            text = read_text(path)
            document = read_yaml(text)
        except YamlError as error:
            words = why_no_yaml(text, error, sections) if text else error.text
            raise ExperimentError(
                [f"{self._file}:{_position(error)}: {shorten(words, 1000)}"]
            ) from None
        why = why_no_experiment(document.value, sections, overridden=overridden)
        if why is not None:
            raise ExperimentError([f"{self._file}:1: {why}"])
        self._note(document)
        return document.value or {}

    def _note(self, document: Document) -> None:
        for key, number in document.line_of.items():
            if key:
                self._origin[key] = (number, f"{self._file}:{number}")
        for problem in document.problems:
            line = _line(f"{self._file}:{problem.line}", problem.key, problem.text)
            self._problems.append((problem.line, line))
        self._unread |= document.unread

    def _override(self, text: str, rank: int) -> str | None:
        """Put one `a.b=value` over the data; the line to print where that is impossible."""
        origin = "--set " + shorten(" ".join(masked(text).split()), 200)
        name, equals, value_text = text.partition("=")
        key: Key = tuple(name.strip().split("."))
        if not equals or not all(key):
            return f"{origin}: expected KEY=VALUE, for example search.tau.end=0.1"
        if is_torn(name):
            return f"{origin}: bytes that are no UTF-8"
        if len(key) > MAX_DEPTH:
            return f"{origin}: no key has {len(key)} parts"
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
        self._unread = {old for old in self._unread if old[: len(key)] != key}
        self._unread |= {(*key, *inner) for inner in document.unread}
        self._origin = {
            old: there for old, there in self._origin.items() if old[: len(key)] != key
        } | {key: (rank, origin)}
        return None

    def _origin_of(self, key: Key) -> tuple[int, str]:
        """Of the key itself, or of the nearest key around it that stands somewhere."""
        while key not in self._origin:
            key = key[:-1]
        return self._origin[key]


def _line(origin: str, key: Key, words: str) -> str:
    words = shorten(words, 1000)
    return f"{origin}: {dotted(key)}: {words}" if key else f"{origin}: {words}"


def _printable(text: str) -> str:
    """One line, in which nothing from the file can steer a terminal."""
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )


def _position(error: YamlError) -> str:
    return f"{error.line}" if error.column is None else f"{error.line}:{error.column}"
