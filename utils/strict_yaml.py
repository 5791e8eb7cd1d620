"""YAML read by the rules of YAML 1.2 (core schema), strictly, with the line of every key.

PyYAML alone reads `3e-4` as text, `no` as False, `010` as 8 and `1:30` as 90, and lets the second
of two equal keys win silently.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from utils.validation import Key

# A few lines of aliases can stand for more values than there is memory.
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
    """Plain values (None, bool, int, float, str, list, dict), the lines of their keys, problems."""

    value: Any = None
    line_of: dict[Key, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def read_text(path: Path) -> str:
    """The text of a file; YamlError where it is not UTF-8."""
    raw = path.read_bytes()
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise YamlError("not UTF-8 text; save the file as UTF-8", line) from None


def read_yaml(text: str) -> Document:
    """Read one YAML document.

    Raises:
        YamlError: a syntax error, a tag, a second document, or more nesting or values than any
            experiment needs. What is wrong with single keys and values is in `problems`.
    """
    document = Document()
    try:
        with _syntax_errors():
            root = _Loader(text).get_single_node()
        if root is not None:
            document.value = _Builder(document).build(root, ())
    except RecursionError:
        raise YamlError("nested too deep") from None
    return document


def dump_yaml(value: Any) -> str:
    """YAML text that `read_yaml` and a YAML 1.1 reader both read as `value`."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=96)


class _Loader(yaml.SafeLoader):
    """Composes nodes by the core schema."""

    yaml_implicit_resolvers: dict[Any, Any] = {}  # noqa: RUF012 (the type the parent class has)

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if getattr(event, "tag", None) is not None:
            message = "tags have no meaning here; write the value without '!'"
            raise yaml.MarkedYAMLError(problem=message, problem_mark=event.start_mark)
        return super().compose_node(parent, index)


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
def _syntax_errors() -> Iterator[None]:
    """Whatever PyYAML raises becomes a YamlError with its place."""
    try:
        yield
    except yaml.MarkedYAMLError as error:
        message = ", ".join(part for part in (error.context, error.problem) if part)
        if error.problem and error.context_mark and str(error.context).startswith("while"):
            start = error.context_mark.line + 1
            message = f"{error.problem} ({error.context} that starts in line {start})"
        if "'\\t'" in message:
            message = "a tab; YAML is indented with spaces"
        mark = error.problem_mark or error.context_mark
        place = (mark.line + 1, mark.column + 1) if mark else (1,)
        raise YamlError(message, *place) from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise YamlError(" ".join(str(error).split())) from None


@dataclass
class _Builder:
    """Turns nodes into plain values; notes lines and problems in the document."""

    document: Document

    def build(self, node: yaml.Node, key: Key) -> Any:
        line = node.start_mark.line + 1
        self.document.line_of.setdefault(key, line)
        if len(self.document.line_of) > MAX_VALUES:
            raise YamlError(f"more than {MAX_VALUES} values", line)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, key)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(item, (*key, i)) for i, item in enumerate(node.value)]
        return _scalar(node)

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
            here = (*key, name)
            if name in mapping:
                first = self.document.line_of[here]
                self._problem(here, line, f"given twice, first in line {first}; leave one out")
                continue
            self.document.line_of[here] = line
            mapping[name] = self.build(value_node, here)
        return mapping

    def _problem(self, key: Key, line: int, text: str) -> None:
        self.document.problems.append(Problem(key, line, text))


def _scalar(node: yaml.Node) -> Any:
    text: str = node.value
    if node.tag == _NULL:
        return None
    if node.tag == _BOOL:
        return text.lower() == "true"
    if node.tag == _FLOAT:
        return float(text.replace(".", "", 1) if text[-1] in "fFnN" else text)
    if node.tag == _INT and len(text) < 30:
        number = int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
        if abs(number) < 2**63:
            return number
    # A text, or an integer of more than 64 bits, which no key takes.
    return text
