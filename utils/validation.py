"""Pydantic's validation errors in the words of someone who edits an experiment file."""

import difflib
import math
import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from utils.text import masked, shorten

# Where a value stands: keys of mappings, places in lists.
Key = tuple[str | int, ...]
Said = tuple[Key, str]
_MAPPING = "a mapping of keys"
# A section with so many keys or fewer is told whole where one is unknown.
_FEW_KEYS = 12
_KINDS = {
    "int_type": "an integer",
    "int_from_float": "an integer",
    "int_parsing": "an integer",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": _MAPPING,
    "model_type": _MAPPING,
    "model_attributes_type": _MAPPING,
    "none_required": "null",
}
_BOUNDS = {
    "greater_than": ("gt", "above"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "below"),
    "less_than_equal": ("le", "at most"),
}


class Section(BaseModel):
    """A frozen part of a file that refuses unknown keys, infinite numbers and nan."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def left_out(self) -> dict[str, Any]:
        """The values in use of keys that are null, where the section alone decides them."""
        return {}

    def identity(self) -> dict[str, Any]:
        """What a phase is claimed by."""
        return self.model_dump(mode="json")


def explain(errors: Sequence[ErrorDetails], root: type[BaseModel], data: Any) -> list[Said]:
    """One (key, words) pair for each key with an error; a validator may name several keys."""
    placed = [
        (_place(error["loc"], data, error["type"] == "missing"), error)
        for error in errors
        if not _only_follows(error)
    ]
    explained = []
    for key, group in groupby(placed, key=lambda pair: pair[0]):
        at_key = [error for _, error in group]
        lines = str(at_key[0].get("ctx", {}).get("error", "")).splitlines()
        if len(at_key) == 1 and len(lines) > 1:
            explained += [_split_value_error(key, line, root) for line in lines]
        else:
            explained.append(_explain_key(key, at_key, root))
    return explained


def first_problem(error: ValidationError) -> str:
    """The first of the problems of a file that nobody edits, as `key: what is wrong`."""
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "content"
    return f"{where:.60}: {first['msg']}"


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
    near = _nearest(found, choices) if isinstance(found, str) else None
    return f"; did you mean '{near}'?" if near else ""


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
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else f"{'-' if value < 0 else ''}.inf"
    return str(value).lower() if isinstance(value, bool) else str(value)


def plain_types(root: type[BaseModel], key: Key) -> set[type]:
    """Of int, float, bool, str and NoneType those that may stand at a key."""
    fields = [model.model_fields.get(str(key[-1])) for model in _models_at(root, key[:-1])]
    return {kind for field in fields if field for kind in _plain(field.annotation)}


def _plain(annotation: Any) -> Iterator[type]:
    if annotation in (int, float, bool, str, type(None)):
        yield annotation
    elif get_origin(annotation) is Annotated:
        yield from _plain(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, UnionType):
        for member in get_args(annotation):
            yield from _plain(member)
    elif get_origin(annotation) is Literal:
        yield from (type(value) for value in get_args(annotation))


def _only_follows(error: ErrorDetails) -> bool:
    # A list that is too short only because its faulty items were not counted.
    return error["type"] == "too_short" and len(error["input"]) >= error["ctx"]["min_length"]


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


def _explain_key(key: Key, errors: list[ErrorDetails], root: type[BaseModel]) -> Said:
    """Several errors at one key are the members of a union, none of which fits."""
    wanted = [kind for error in errors if (kind := _expected(error))]
    if len(errors) > 1 and len(wanted) == len(errors):
        choices = [choice for error in errors for choice in _choices(error)]
        found = errors[0]["input"]
        kinds = " or ".join(dict.fromkeys(wanted))
        return key, f"expected {kinds}, found {show(found)}{hint(found, choices)}"
    specific = [error for error in errors if not _expected(error)]
    return _explain_one(key, (specific or errors)[0], root)


def _explain_one(key: Key, error: ErrorDetails, root: type[BaseModel]) -> Said:
    kind, found, context = error["type"], error["input"], error.get("ctx", {})
    if kind == "extra_forbidden":
        return key, f"unknown key{_where_it_may_belong(key, root)}"
    if kind == "missing" and isinstance(key[-1], int):
        return key[:-1], f"expected more values, found {len(found)}"
    if kind == "missing":
        return key, "missing; it has no default"
    if kind == "literal_error":
        return key, must_be_one_of(found, _choices(error))
    if kind in _KINDS:
        empty = found is None and _KINDS[kind] == _MAPPING and _may_be_empty(root, key)
        words = "; {} sets none of them" * empty
        return key, f"expected {_KINDS[kind]}, found {show(found)}{words}"
    if kind in _BOUNDS:
        name, words = _BOUNDS[kind]
        return key, f"must be {words} {_bound(context[name])}, found {show(found)}"
    if kind == "finite_number":
        return key, f"must be finite, found {show(found)}"
    if kind in ("too_short", "too_long"):
        bound = context["min_length"] if kind == "too_short" else context["max_length"]
        words = "at least" if kind == "too_short" else "at most"
        return key, f"must have {words} {bound} values, found {context['actual_length']}"
    if kind == "string_pattern_mismatch":
        return key, f"must match {context['pattern']}, found {show(found)}"
    if kind == "union_tag_not_found":
        return (*key, _quoted(context["discriminator"])[0]), "missing; it has no default"
    if kind == "union_tag_invalid":
        choices = _quoted(context["expected_tags"])
        return (
            key,
            f"{_quoted(context['discriminator'])[0]} {must_be_one_of(context['tag'], choices)}",
        )
    if kind == "json_invalid":
        return key, f"not JSON that can be read: {context['error']}"
    if kind == "value_error":
        return _split_value_error(key, str(context["error"]), root)
    return key, f"{error['msg'][0].lower()}{error['msg'][1:]}, found {show(found)}"


def _may_be_empty(root: type[BaseModel], key: Key) -> bool:
    fields = [field for model in _models_at(root, key) for field in model.model_fields.values()]
    return bool(fields) and not any(field.is_required() for field in fields)


def _bound(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _expected(error: ErrorDetails) -> str | None:
    if error["type"] == "literal_error":
        return " or ".join(_choices(error))
    return _KINDS.get(error["type"])


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
    name = str(key[-1])
    models = _models_at(root, key[:-1])
    siblings = [field for model in models for field in model.model_fields]
    if name in siblings:  # one of several models may stand here, and another one has it
        marks = [mark for model in models if name in model.model_fields for mark in _marks(model)]
        mark = next((mark for mark in marks if mark[0] != "kind"), None)
        if mark:
            return f"; it goes with {mark[0]}: {mark[1]} only"
        return f"; it goes with kind: {' or '.join(value for _, value in marks)}"
    named = list(dict.fromkeys(dotted(key) for key in _all_keys(root, ()) if key[-1] == name))
    prefix = dotted(key[:-1])
    below = [place for place in named if prefix and place.startswith(prefix + ".")]
    if 0 < len(below or named) <= 3:
        return f"; did you mean {' or '.join(repr(place) for place in below or named)}?"
    few = len(models) == 1 and len(siblings) <= _FEW_KEYS
    return hint(name, siblings) or (f"; there is {', '.join(siblings)}" if few else "")


def _marks(model: type[BaseModel]) -> Iterator[tuple[str, Any]]:
    # The keys for which a model takes one value only, and that value.
    for name, field in model.model_fields.items():
        if get_origin(field.annotation) is Literal and len(get_args(field.annotation)) == 1:
            yield name, get_args(field.annotation)[0]


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


def _nearest(word: str, choices: Sequence[str]) -> str | None:
    """A choice that differs by case, continues the word, or is spelled alike."""
    folded = {choice.casefold(): choice for choice in choices}
    low = word.casefold()
    longer = [choice for choice in folded if low and choice.startswith(low)]
    sure = len(longer) == 1 or (longer and len(low) > 2)
    near = longer if sure else difflib.get_close_matches(low, folded, n=1)
    return folded[near[0]] if near else None
