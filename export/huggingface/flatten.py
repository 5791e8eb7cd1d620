"""The modelling file: what a layout needs of `model/`, put together as one file.

It begins at `export/huggingface/modeling.py` and follows every name to where it is defined, so that
the file cannot drift from `model/`. Sources are taken as they stand, comments included. Options,
which pydantic checks here, become plain dataclasses of the same names; what stands in REPLACED is
taken from `values.py`; the registry holds the kinds of the layout.
"""

import ast
import importlib
import json
import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from inspect import getdoc
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from model.blocks import BLOCKS

ROOT = Path(__file__).resolve().parents[2]
START = "export.huggingface.modeling"
_REGISTRY = "model.blocks"
# Names that need other packages, and what stands for them.
REPLACED = {
    ("model.blocks", "BlockKind"): "BlockKind",
    ("model.blocks.options", "BlockOptions"): "BlockOptions",
    ("model.blocks", "Candidate"): "Candidate",
    ("model.config", "SoftmaxConfig"): "SoftmaxConfig",
    ("model.ops", "keep"): "keep",
}
_VALUES = "export.huggingface.values"
_OURS = ("model", "export", "utils", "data")

# A module and a name that it defines.
Place = tuple[str, str]


@dataclass(frozen=True)
class Module:
    """A source file: its text, what it defines, and where the names come from that it imports.

    An import is (module, name), or (module, "") where the name stands for the module itself.
    """

    docstring: str
    lines: list[str]
    defined: dict[str, ast.stmt]
    imported: dict[str, Place]


@cache
def read_module(name: str) -> Module:
    """Read a module of ours."""
    path = ROOT / Path(*name.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    defined: dict[str, ast.stmt] = {}
    imported: dict[str, Place] = {}
    for node in tree.body:
        if isinstance(node, ast.Import):
            imported |= {(a.asname or a.name): (a.name, "") for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported |= {(a.asname or a.name): (node.module or "", a.name) for a in node.names}
        else:
            defined |= {name: node for name in _names_bound(node)}
    return Module(ast.get_docstring(tree) or "", text.splitlines(), defined, imported)


def _names_bound(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            yield from (part.id for part in ast.walk(target) if isinstance(part, ast.Name))


@dataclass
class _File:
    """What the file will hold: of each module the names, and the imports of other packages."""

    kinds: list[str]
    needed: dict[str, set[str]] = field(default_factory=dict)
    outside: dict[str, Place] = field(default_factory=dict)

    def add(self, module: str, name: str) -> None:
        """Take a definition, and all that it names."""
        if name in self.needed.setdefault(module, set()):
            return
        self.needed[module].add(name)
        for used in sorted(self._uses(module, name)):
            self._follow(module, used)

    def _uses(self, module: str, name: str) -> set[str]:
        if (module, name) == (_REGISTRY, "BLOCKS"):
            # Their modules are imported when a block is made.
            for kind in self.kinds:
                self.add(f"{_REGISTRY}.{kind}", BLOCKS[kind].class_name)
            return {"BlockKind", *(BLOCKS[kind].options.__name__ for kind in self.kinds)}
        if (options := _options(module, name)) is not None:
            return {base.__name__ for base in options.__bases__ if not _is_foreign(base)}
        return set(_names_used(read_module(module).defined[name]))

    def _follow(self, module: str, name: str) -> None:
        """Take what a name means in a module; a name of Python's own means nothing there."""
        if (module, name) in REPLACED:
            self.add(_VALUES, REPLACED[module, name])
            return
        known = read_module(module)
        if name in known.defined or (module, name) == (_REGISTRY, "BLOCKS"):
            self.add(module, name)
        elif name in known.imported:
            origin, original = known.imported[name]
            if origin.split(".")[0] in _OURS:
                assert original == name, f"{module}: {original} is imported as {name}"
                self._follow(origin, name)
            else:
                known_as = self.outside.setdefault(name, (origin, original))
                assert known_as == (origin, original), f"{name}: means another thing in {module}"


def _names_used(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            yield part.id
        annotations = [getattr(part, name, None) for name in ("annotation", "returns")]
        for note in annotations:
            if isinstance(note, ast.Constant) and isinstance(note.value, str):
                yield from _names_used(ast.parse(note.value))


def _options(module: str, name: str) -> type[BaseModel] | None:
    """The class of options that a name is; None where it is none."""
    if not isinstance(read_module(module).defined.get(name), ast.ClassDef) or module == START:
        return None
    value = getattr(importlib.import_module(module), name) if module.startswith("model") else None
    return value if isinstance(value, type) and issubclass(value, BaseModel) else None


def _is_foreign(base: type) -> bool:
    """Whether a base of options is what checks them here, and nothing beside."""
    return base.__module__.split(".")[0] != "model"


def _in_order(module: str, seen: dict[str, None]) -> dict[str, None]:
    """The modules of ours that one imports, each behind those that it imports itself."""
    if module in seen:
        return seen
    seen[module] = None
    kinds = [f"{_REGISTRY}.{kind}" for kind in BLOCKS] if module == _REGISTRY else []
    for origin in [*kinds, *(origin for origin, _ in read_module(module).imported.values())]:
        if origin.split(".")[0] in _OURS:
            _in_order(origin, seen)
    # Behind what it imports, which is behind it now.
    del seen[module]
    seen[module] = None
    return seen


def modelling_source(kinds: Iterable[str]) -> str:
    """The text of the modelling file of layouts of these kinds."""
    file = _File(sorted(set(kinds)))
    for name in read_module(START).defined:
        file.add(START, name)
    parts = [_heading(file.kinds), _imports(file.outside)]
    owners: dict[str, str] = {}
    for module in [_VALUES, *_in_order(START, {})]:
        if module not in file.needed:
            continue
        for name in sorted(file.needed[module]):
            owner = owners.setdefault(name, module)
            assert owner == module, f"{name}: is defined in {owner} and in {module}"
        parts.append(_banner(module))
        parts += _definitions(file, module)
    return "\n\n\n".join(part.strip("\n") for part in parts) + "\n"


def _heading(kinds: Iterable[str]) -> str:
    return (
        f'"""A Parnas language model for transformers, of the kinds {", ".join(kinds)}.\n\n'
        "Made by `python -m tools.export` from Parnas' own sources, whose names are above their\n"
        'parts: a change here is lost with the next export.\n"""\n\n'
        "from __future__ import annotations"
    )


def _imports(outside: dict[str, Place]) -> str:
    whole: list[str] = []
    parts: dict[str, list[str]] = {}
    for name, (module, original) in sorted(outside.items()):
        if not original:
            whole.append(f"import {module}" + ("" if name == module else f" as {name}"))
            continue
        shown = original if name == original else f"{original} as {name}"
        parts.setdefault(module, []).append(shown)
    lines = [f"from {module} import {', '.join(names)}" for module, names in parts.items()]
    return "\n".join(sorted(whole) + sorted(lines))


def _banner(module: str) -> str:
    says = read_module(module).docstring.splitlines()
    return "\n".join(f"# {line}".rstrip() for line in [f"---- {module} ----", *says])


def _definitions(file: _File, module: str) -> Iterator[str]:
    """What is taken of a module, in the order in which it stands there."""
    known, taken = read_module(module), set()
    if module == _REGISTRY:
        yield _registry(file.kinds)
    for name, node in known.defined.items():
        if name not in file.needed[module] or id(node) in taken or module == _REGISTRY:
            continue
        taken.add(id(node))
        options = _options(module, name)
        yield _as_dataclass(options) if options is not None else _text(known.lines, node)


def _text(lines: list[str], node: ast.stmt) -> str:
    """A statement as it stands, with its decorators and the comment right above it."""
    decorators = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(decorator.lineno for decorator in decorators)]) - 1
    while first and lines[first - 1].startswith("#"):
        first -= 1
    return "\n".join(lines[first : node.end_lineno])


def _registry(kinds: Iterable[str]) -> str:
    rows = [
        f'    "{name}": BlockKind("{kind.letter}", {kind.options.__name__}, {kind.class_name}),'
        for name, kind in ((name, BLOCKS[name]) for name in kinds)
    ]
    return "\n".join(["BLOCKS = {", *rows, "}"])


def _as_dataclass(options: type[BaseModel]) -> str:
    """Options as a dataclass: their names, types and defaults, without checks."""
    (base,) = options.__bases__
    inherits = "" if _is_foreign(base) else f"({base.__name__})"
    lines = ["@dataclass(frozen=True, kw_only=True)", f"class {options.__name__}{inherits}:"]
    lines += [f'    """{(getdoc(options) or "").splitlines()[0]}"""', ""]
    for name in options.__annotations__:
        if (info := options.model_fields.get(name)) is None:
            continue
        shown = _type_name(info.annotation)
        required = info.default is PydanticUndefined or (
            info.default is None and not shown.endswith("None")
        )
        default = json.dumps(info.default) if shown == "str" else repr(info.default)
        lines.append(f"    {name}: {shown}" + ("" if required else f" = {default}"))
    return "\n".join(lines)


def _type_name(annotation: Any) -> str:
    """A type without its bounds."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation is type(None):
        return "None"
    if origin is Annotated:
        return _type_name(arguments[0])
    if origin is Literal:
        return type(arguments[0]).__name__
    if origin in (Union, types.UnionType):
        return " | ".join(map(_type_name, arguments))
    return str(annotation.__name__)
