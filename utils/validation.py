"""Pydantic's validation errors in the words of someone who edits an experiment file."""

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from itertools import groupby
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from utils.text import masked, shorten

Key = tuple[str | int, ...]
Said = tuple[Key, str]
_MISSING = "missing; it has no default"
# How pydantic begins to say what a value must be.
_SHOULD_BE = "Input should be "
# Ends of the names of its errors that each member of a union may have.
_OF_TYPE = ("_type", "_from_float", "_required", "literal_error")


class Section(BaseModel):
    """A frozen part of a file that refuses unknown keys, infinite numbers and nan."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def refuse_idle(self, keys: Iterable[str], setting: str) -> None:
        """Raise ValueError where a key that has no effect with a setting is not at its default."""
        for key in keys:
            if (value := getattr(self, key)) != type(self).model_fields[key].default:
                raise ValueError(
                    f"{key}: has no effect with {setting}, found {value}; leave it out"
                )

    def identity(self) -> dict[str, Any]:
        """What a phase is claimed by."""
        return self.model_dump(mode="json")


def explain(errors: Sequence[ErrorDetails], root: type[BaseModel], data: Any) -> list[Said]:
    """One (key, words) pair for each key with an error; a validator may name several keys."""
    placed = [
        (_place(error["loc"], data, error["type"] == "missing"), error)
        for error in errors
        # Not a list that is too short only because its faulty items were not counted.
        if error["type"] != "too_short" or len(error["input"]) < error["ctx"]["min_length"]
    ]
    explained: list[Said] = []
    for key, group in groupby(placed, key=lambda pair: pair[0]):
        at_key = [error for _, error in group]
        specific = [error for error in at_key if not error["type"].endswith(_OF_TYPE)]
        if specific or len(at_key) == 1:
            explained += _explain_one(key, (specific or at_key)[0], root)
            continue
        # The members of a union.
        wanted = dict.fromkeys(error["msg"].removeprefix(_SHOULD_BE) for error in at_key)
        choices = [choice for error in at_key for choice in _choices(error)]
        found = at_key[0]["input"]
        words = f"must be {' or '.join(wanted)}, found {show(found)}{hint(found, choices)}"
        explained.append((key, words))
    return explained


def first_problem(error: ValidationError) -> str:
    """The first of the problems of a file that nobody edits, as `key: what is wrong`."""
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "content"
    return f"{where:.60}: {first['msg']}"


def check_installed(what: str, packages: Sequence[str]) -> None:
    """Raise ValueError where a package that the user asked for by `what` is missing."""
    if missing := [package for package in packages if find_spec(package) is None]:
        raise ValueError(
            f"{what}: the package {missing[0]} is missing; pip install -r requirements-extras.lock"
        )


def dotted(key: Key) -> str:
    """`search.tau.end`; list items as `model.candidates[1]`."""
    text = "".join(
        f"[{part}]" if isinstance(part, int) else f".{shorten(part, 60) or repr(part)}"
        for part in key
    )
    return text.removeprefix(".")


def must_be_one_of(found: Any, choices: Sequence[str]) -> str:
    """The words for a name that is not among the choices."""
    return f"must be one of {', '.join(choices)}; found {show(found)}{hint(found, choices)}"


def hint(found: Any, choices: Sequence[str]) -> str:
    """'; did you mean 'x'?' where a choice resembles what was found, else nothing."""
    folded = {choice.casefold(): choice for choice in choices}
    text = found.casefold() if isinstance(found, str) else ""
    near = difflib.get_close_matches(text, folded, n=1)
    return f"; did you mean '{folded[near[0]]}'?" if near else ""


def show(value: Any) -> str:
    """A found value as it looks in YAML, cut where it is long."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, str):
        return repr(shorten(masked(value), 60))
    if value is None:
        return "nothing"
    return str(value).lower() if isinstance(value, bool) else str(value)


def takes_integers_alone(root: type[BaseModel], key: Key) -> bool:
    """Whether all numbers that may stand at a key are integers."""
    sections = [model.model_json_schema()["properties"] for model in _models_at(root, key[:-1])]
    schemas = [section.get(str(key[-1]), {}) for section in sections]
    kinds = {one.get("type") for schema in schemas for one in (schema, *schema.get("anyOf", ()))}
    return "integer" in kinds and "number" not in kinds


def _place(loc: Sequence[str | int], data: Any, missing: bool) -> Key:
    """Where in the file an error is: pydantic's loc without the names of union members."""
    key: list[str | int] = []
    for part in loc:
        if isinstance(data, dict) and part in data:
            data = data[str(part)]
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
        elif not (missing and part == loc[-1]):
            continue
        key.append(part)
    return tuple(key)


def _explain_one(key: Key, error: ErrorDetails, root: type[BaseModel]) -> list[Said]:
    kind, context = error["type"], error.get("ctx", {})
    found = show(error["input"])
    if kind == "value_error":
        return [_split_value_error(key, line, root) for line in str(context["error"]).splitlines()]
    if kind == "union_tag_not_found":
        return [((*key, _quoted(context["discriminator"])[0]), _MISSING)]
    if kind == "missing":
        return [(key, _MISSING)]
    if kind == "extra_forbidden":
        words = f"unknown key{_where_it_may_belong(key, root)}"
    elif kind == "literal_error":
        words = must_be_one_of(error["input"], _choices(error))
    elif kind == "union_tag_invalid":
        choices = must_be_one_of(context["tag"], _quoted(context["expected_tags"]))
        words = f"{_quoted(context['discriminator'])[0]} {choices}"
    else:
        said = error["msg"].replace(_SHOULD_BE, "must be ")
        said = said[0].lower() + said[1:]
        words = said if kind == "json_invalid" else f"{said}, found {found}"
    return [(key, words)]


def _choices(error: ErrorDetails) -> list[str]:
    if error["type"] != "literal_error":
        return []
    expected = error["ctx"]["expected"]
    # Numbers stand there without quotes.
    return _quoted(expected) or re.split(r", | or ", expected)


def _quoted(text: str) -> list[str]:
    """The names in pydantic's "'a', 'b' or 'c'"."""
    return re.findall(r"'([^']*)'", text)


def _split_value_error(key: Key, text: str, root: type[BaseModel]) -> Said:
    """A text that starts with 'field:' or 'field[1].field:' belongs to that key."""
    match = re.match(r"([A-Za-z_]\w*(?:\.\w+|\[\d+\])*): ", text)
    if match:
        parts = re.findall(r"\w+", match[1])
        names = [int(part) if part.isdecimal() else part for part in parts]
        if any(names[0] in model.model_fields for model in _models_at(root, key)):
            return (*key, *names), text[match.end() :]
        if key and names == [key[-1]]:
            return key, text[match.end() :]
    return key, text


def _where_it_may_belong(key: Key, root: type[BaseModel]) -> str:
    """The same name elsewhere, first below the same section; else a similar name."""
    name, models = str(key[-1]), _models_at(root, key[:-1])
    siblings = [field for model in models for field in model.model_fields]
    if name in siblings:
        own = [model.model_fields for model in models if name in model.model_fields]
        kinds = [str(fields["kind"].default) for fields in own if "kind" in fields]
        return f"; kinds that have it: {', '.join(kinds)}" if kinds else "; others here have it"
    named = list(dict.fromkeys(dotted(key) for key in _all_keys(root, ()) if key[-1] == name))
    prefix = dotted(key[:-1])
    below = [place for place in named if prefix and place.startswith(prefix + ".")]
    if 0 < len(below or named) <= 3:
        return f"; did you mean {' or '.join(repr(place) for place in below or named)}?"
    return hint(name, siblings)


def _all_keys(model: type[BaseModel], prefix: Key) -> Iterator[Key]:
    for name, field in model.model_fields.items():
        yield (*prefix, name)
        for inner in _models_in(field.annotation):
            yield from _all_keys(inner, (*prefix, name))


def _models_at(root: type[BaseModel], key: Key) -> list[type[BaseModel]]:
    """The models that may stand at a key (several where it is a union)."""
    models, named_freely = [root], False
    for part in key:
        if isinstance(part, int):
            continue
        if named_freely:  # a name in a mapping, such as those of sweep.space
            named_freely = False
            continue
        fields = [model.model_fields[part] for model in models if part in model.model_fields]
        models = [inner for field in fields for inner in _models_in(field.annotation)]
        named_freely = any(get_origin(field.annotation) is dict for field in fields)
    return models


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)
