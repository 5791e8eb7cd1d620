"""What is wrong with an architecture, in words: one line per problem, each with its path."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from model.blocks import BLOCKS

Location = tuple[int | str, ...]
MOST_SHOWN = 20


def describe(error: ValidationError, schema: type[BaseModel]) -> list[str]:
    """One line per problem, e.g. "slots[3].kind: unknown kind 'atention'; did you mean ...?"."""
    lines: list[str] = []
    problems = error.errors()
    for problem in problems[:MOST_SHOWN]:
        where, path = problem["loc"], _path(problem["loc"])
        context: dict[str, Any] = problem.get("ctx", {})
        match problem["type"]:
            case "missing":
                lines.append(f"{path}: missing")
            case "extra_forbidden":
                lines.append(f"{path}: unknown field; {suggest(where[-1], _fields(where, schema))}")
            case "union_tag_not_found":
                lines.append(f"{path}.kind: missing")
            case "union_tag_invalid":
                tag = context["tag"]
                lines.append(f"{path}.kind: unknown kind {tag!r}; {suggest(tag, BLOCKS)}")
            case "value_error":
                lines.extend(_join(path, line) for line in str(context["error"]).splitlines())
            case "json_invalid":
                lines.append(f"not JSON that can be read: {context['error']}")
            case _:
                message = problem["msg"].removeprefix("Input ")
                lines.append(f"{path or 'the file'}: {message}; found {problem['input']!r:.60}")
    return few(lines, len(problems))


def few(lines: list[str], count: int) -> list[str]:
    """The lines of the first problems, and how many more than MOST_SHOWN there are."""
    return [*lines, f"and {count - MOST_SHOWN} more problems"] if count > MOST_SHOWN else lines


def suggest(found: object, known: Iterable[str]) -> str:
    """The known name that was probably meant, else all of them."""
    close = get_close_matches(str(found), list(known), n=1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"


def _path(where: Location) -> str:
    """slots[3].n_heads for ("slots", 3, "attention", "n_heads")."""
    if where[:1] == ("slots",):
        where = where[:2] + where[3:]
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in where)
    return "".join(parts).removeprefix(".")


def _join(path: str, message: str) -> str:
    """A validator's message begins with the name of the field it is about, or with none."""
    if not path:
        return message
    return f"{path}.{message}" if re.match(r"[a-z_]+: ", message) else f"{path}: {message}"


def _fields(where: Location, schema: type[BaseModel]) -> list[str]:
    """The fields of the object in which the last part of `where` stands."""
    if where[0] == "slots" and len(where) > 2:
        return list(BLOCKS[str(where[2])].options.model_fields)
    for part in where[:-1]:
        annotation = schema.model_fields[str(part)].annotation
        schema = next(
            member
            for member in (annotation, *get_args(annotation))
            if isinstance(member, type) and issubclass(member, BaseModel)
        )
    return list(schema.model_fields)
