"""YAML read by the rules of YAML 1.2 (core schema), strictly, with the line of every key.

PyYAML alone reads `3e-4` as text, `no` as False, `010` as 8 and `1:30` as 90, and lets the second
of two equal keys win silently.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from utils.validation import Key

_NULL, _BOOL, _INT, _FLOAT, _STR = (
    f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str")
)
# An integer of more than 64 bits is a text, which no key takes for a number.
_CORE = {
    _NULL: r"~|null|Null|NULL|",
    _BOOL: r"true|True|TRUE|false|False|FALSE",
    _INT: r"[-+]?[0-9]{1,19}|0o[0-7]{1,20}|0x[0-9a-fA-F]{1,15}",
    _FLOAT: r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
    r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
}


class YamlError(ValueError):
    """The text is no document that we read; `line` and `column` count from 1."""

    def __init__(self, text: str, line: int = 1, column: int | None = None) -> None:
        super().__init__(text)
        self.text, self.line, self.column = text, line, column


class Problem(NamedTuple):
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

    def build(self, node: yaml.Node, key: Key) -> Any:
        """The plain value of a node; its line and problems are noted."""
        self.line_of.setdefault(key, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, key)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(item, (*key, i)) for i, item in enumerate(node.value)]
        return _scalar(node)

    def _mapping(self, node: yaml.MappingNode, key: Key) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for name_node, value_node in node.value:
            line, name = name_node.start_mark.line + 1, name_node.value
            here = (*key, str(name))
            if name_node.tag != _STR:
                text = f"key {name}: a key must be text; quote it or leave it out"
                self.problems.append(Problem(key, line, text))
            elif name in mapping:
                text = f"given twice, first in line {self.line_of[here]}; leave one out"
                self.problems.append(Problem(here, line, text))
            else:
                self.line_of[here] = line
                mapping[name] = self.build(value_node, here)
        return mapping


def read_text(path: Path) -> str:
    """The text of a file; YamlError where it is not UTF-8."""
    raw = path.read_bytes()
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise YamlError("not UTF-8 text; save the file as UTF-8", line) from None


def read_yaml(text: str) -> Document:
    """Read one YAML document; what is wrong with single keys is in its `problems`.

    Raises:
        YamlError: a syntax error, a second document, or an unseen line end.
    """
    if unseen := re.search("[\x85\u2028\u2029]", text):
        line = text.count("\n", 0, unseen.start()) + 1
        words = "ends a line for YAML, so a comment may end there; delete it"
        raise YamlError(f"the character U+{ord(unseen[0]):04X} {words}", line)
    document = Document()
    try:
        root = _Loader(text).get_single_node()
    except yaml.MarkedYAMLError as error:
        message = ", ".join(part for part in (error.context, error.problem) if part)
        mark = error.problem_mark or error.context_mark
        place = (mark.line + 1, mark.column + 1) if mark else (1,)
        raise YamlError(message, *place) from None
    except yaml.YAMLError as error:
        raise YamlError(" ".join(str(error).split())) from None
    if root is not None:
        document.value = document.build(root, ())
    return document


def dump_yaml(value: Any) -> str:
    """YAML text that `read_yaml` and a YAML 1.1 reader both read as `value`."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=96)


class _Loader(yaml.SafeLoader):
    """Composes nodes by the core schema."""

    yaml_implicit_resolvers: dict[Any, Any] = {}  # noqa: RUF012 (the type the parent class has)


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


def _scalar(node: yaml.Node) -> Any:
    text: str = node.value
    if node.tag == _NULL:
        return None
    if node.tag == _BOOL:
        return text.lower() == "true"
    if node.tag == _INT:
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
    if node.tag == _FLOAT:
        return float(text.replace(".", "", 1) if text[-1] in "fFnN" else text)
    return text
