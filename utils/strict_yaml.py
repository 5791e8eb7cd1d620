"""YAML read by the rules of YAML 1.2 (core schema), strictly, with the line of every key.

PyYAML alone reads `3e-4` as text, `no` as False, `010` as 8 and `1:30` as 90, and lets the second
of two equal keys win silently.
"""

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

Key = tuple[str | int, ...]

MAX_YAML_BYTES = 1_000_000
MAX_DEPTH = 32
MAX_VALUES = 20_000

_NULL, _BOOL, _INT, _FLOAT, _STR = (
    f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str")
)
_CORE = {
    _NULL: r"~|null|Null|NULL|",
    _BOOL: r"true|True|TRUE|false|False|FALSE",
    _INT: r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+",
    _FLOAT: r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
    r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
}
_TORN = "half of a surrogate pair is no character"


class YamlError(ValueError):
    """The text is no document that we read; `line` and `column` count from 1."""

    def __init__(self, text: str, line: int = 1, column: int | None = None) -> None:
        super().__init__(text)
        self.text, self.line, self.column = text, line, column


@dataclass(frozen=True)
class Problem:
    """What is wrong with the value or key at `key`, and its line."""

    key: Key
    line: int
    text: str


@dataclass
class Document:
    """Plain values (None, bool, int, float, str, list, dict), the lines of their keys, problems.

    At the keys in `unread` stands infinity in the place of a value that cannot be taken over:
    nothing accepts it, and the error that it then causes does not count.
    """

    value: Any = None
    line_of: dict[Key, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    unread: set[Key] = field(default_factory=set)


def read_text(path: Path, kind: str = "experiment file") -> str:
    """The text of a file of a `kind`; YamlError where it is larger than 1 MB or not UTF-8."""
    with path.open("rb") as file:
        raw = file.read(MAX_YAML_BYTES + 1)
    if len(raw) > MAX_YAML_BYTES:
        raise YamlError(f"larger than {MAX_YAML_BYTES} bytes; this is no {kind}")
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")) or 3 * raw.count(0) > len(raw):
        raise YamlError("UTF-16, UTF-32 or a binary file; save it as UTF-8")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if b"\0" in raw:
            raise YamlError(f"no {kind}: a binary file") from None
        line, _ = _place(raw[: error.start].decode("latin-1"))
        raise YamlError(
            f"not UTF-8 text (byte 0x{raw[error.start]:02x}); save the file as UTF-8", line
        ) from None


def read_yaml(text: str) -> Document:
    """Read one YAML document.

    Raises:
        YamlError: a syntax error, a tag, a second document, or more nesting or values than any
            experiment needs. What is wrong with single keys and values is in `problems`.
    """
    document = Document()
    # Line ends in YAML 1.1, and so to PyYAML, but neither in 1.2 nor in an editor: what follows one
    # in a comment would be read.
    if foreign := re.search("[\x85\u2028\u2029]", text):
        code = f"{ord(foreign[0]):04x}"
        raise YamlError(
            f'character U+{code.upper()} is not allowed; in double quotes write "\\u{code}"',
            *_place(text[: foreign.start()]),
        )
    with _syntax_errors(text):
        root = _Loader(text).get_single_node()
    if root is not None:
        try:
            document.value = _Builder(document).build(root, ())
        except RecursionError:
            raise YamlError("an alias stands inside of what it stands for") from None
    return document


def dump_yaml(value: Any) -> str:
    """YAML text that `read_yaml` and a YAML 1.1 reader both read as `value`."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=96)


class _Loader(yaml.SafeLoader):
    """Composes nodes by the core schema, within bounds."""

    yaml_implicit_resolvers: dict[Any, Any] = {}  # noqa: RUF012 (the type the parent class has)

    def __init__(self, text: str) -> None:
        self.depth = 0
        super().__init__(text)

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call]
        if self.depth > MAX_DEPTH:
            _refuse(f"nested deeper than {MAX_DEPTH} levels", event)
        if getattr(event, "tag", None) is not None:
            _refuse("tags have no meaning here; write the value without '!'", event)
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1


class _Dumper(yaml.SafeDumper):
    """Quotes every text that YAML 1.1 or 1.2 would read as something else."""

    def represent_sequence(self, tag: str, sequence: Any, flow_style: Any = None) -> Any:
        # Lists of scalars in one line.
        flat = not any(isinstance(item, list | dict) for item in sequence)
        return super().represent_sequence(tag, sequence, flow_style=flat)

    def represent_str(self, data: str) -> Any:
        # Characters that cannot be printed survive in double quotes alone.
        style = None if data.isprintable() else '"'
        return self.represent_scalar(_STR, data, style=style)

    def ignore_aliases(self, data: Any) -> bool:
        return True


_Dumper.add_representer(str, _Dumper.represent_str)
for _tag, _pattern in _CORE.items():
    _compiled = re.compile(rf"(?:{_pattern})\Z")
    _Loader.add_implicit_resolver(_tag, _compiled, None)
    _Dumper.add_implicit_resolver(_tag, _compiled, None)


@contextmanager
def _syntax_errors(text: str) -> Iterator[None]:
    """Whatever PyYAML raises becomes a YamlError with its place."""
    try:
        yield
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = ", ".join(part for part in (error.context, error.problem) if part)
        if error.problem and error.context_mark and (error.context or "").startswith("while"):
            start = error.context_mark.line + 1
            message = f"{error.problem} ({error.context} that starts in line {start})"
        if "'\\t'" in message:
            message = "a tab; YAML is indented with spaces"
        if mark is None:
            raise YamlError(message) from None
        raise YamlError(message, mark.line + 1, mark.column + 1) from None
    except yaml.reader.ReaderError as error:
        place = _place(text[: error.position])
        raise YamlError(f"character U+{_ordinal(error):04X} is not allowed", *place) from None
    except (ValueError, OverflowError):
        # PyYAML passes on what chr() and int() say to "\UFFFFFFFF" and to "%YAML 1.(digits)".
        raise YamlError("an escape or a directive holds a number that is too large") from None


def _ordinal(error: yaml.reader.ReaderError) -> int:
    character: Any = error.character
    return character if isinstance(character, int) else ord(character)


def _refuse(message: str, event: yaml.Event) -> None:
    mark: Any = event.start_mark
    raise yaml.MarkedYAMLError(problem=message, problem_mark=mark)


@dataclass
class _Builder:
    """Turns nodes into plain values; notes lines and problems in the document."""

    document: Document

    def build(self, node: yaml.Node, key: Key) -> Any:
        line = node.start_mark.line + 1
        self.document.line_of.setdefault(key, line)
        # Counted here: a few lines of aliases stand for more values than there is memory.
        if len(self.document.line_of) > MAX_VALUES:
            column = node.start_mark.column + 1
            raise YamlError(f"more than {MAX_VALUES} values", line, column)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, key)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(item, (*key, i)) for i, item in enumerate(node.value)]
        return self._scalar(node, key, line)

    def _mapping(self, node: yaml.MappingNode, key: Key) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for name_node, value_node in node.value:
            line = name_node.start_mark.line + 1
            if not isinstance(name_node, yaml.ScalarNode) or name_node.tag != _STR:
                name = getattr(name_node, "value", "")
                shown = f"key {name}" if isinstance(name, str) else "a list or mapping as a key"
                self._problem(key, line, f"{shown}: a key must be text; quote it or leave it out")
                continue
            name = name_node.value
            if is_torn(name):
                self._problem(key, line, _TORN)
                continue
            here = (*key, name)
            if name in mapping:
                first = self.document.line_of[here]
                self._problem(here, line, f"given twice, first in line {first}; leave one out")
                continue
            self.document.line_of[here] = line
            mapping[name] = self.build(value_node, here)
        return mapping

    def _scalar(self, node: yaml.Node, key: Key, line: int) -> Any:
        text: str = node.value
        if node.tag == _NULL:
            return None
        if node.tag == _BOOL:
            return text.lower() == "true"
        if node.tag == _INT:
            return self._integer(text, key, line)
        if node.tag == _FLOAT:
            return float(text.replace(".", "", 1) if text[-1] in "fFnN" else text)
        return self._unread(key, line, _TORN) if is_torn(text) else text

    def _integer(self, text: str, key: Key, line: int) -> int | float:
        base = {"0o": 8, "0x": 16}.get(text[:2], 10)
        number = int(text, base) if len(text) < 100 else math.inf
        if abs(number) < 2**63:
            return number
        return self._unread(key, line, "an integer must fit 64 bits")

    def _unread(self, key: Key, line: int, text: str) -> float:
        self._problem(key, line, text)
        self.document.unread.add(key)
        return math.inf

    def _problem(self, key: Key, line: int, text: str) -> None:
        self.document.problems.append(Problem(key, line, text))


def is_torn(text: str) -> bool:
    """Whether a text holds half of a surrogate pair."""
    return any("\ud800" <= character <= "\udfff" for character in text)


def _place(before: str) -> tuple[int, int]:
    # Line and column of what follows this text.
    lines = re.split(r"\r\n?|\n", before)
    return len(lines), len(lines[-1]) + 1
