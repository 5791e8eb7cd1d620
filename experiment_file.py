"""Whether a file is an experiment file at all: said before any key of it is judged."""

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from utils.strict_yaml import YamlError
from utils.text import shorten
from utils.validation import show

# What every architecture file has.
_ARCHITECTURE = {"slots", "d_model", "vocabulary_size"}
_MOST_NAMED = 6
# A section's name with one letter wrong; `step` is no `sweep`.
_ALIKE = 0.75


def why_no_yaml(text: str, error: YamlError, sections: Sequence[str]) -> str:
    """What to say of a text that is no YAML: the error alone where a section begins before it."""
    names = "|".join(sections)
    above = "\n".join(re.split(r"\r\n?|\n", text)[: error.line])
    if re.search(rf"^[\s{{\"']*({names})[\"']?\s*[:{{]", above, re.MULTILINE):
        return error.text
    return (
        f"no experiment file: down to here no section begins ({', '.join(sections)}); "
        f"read as YAML: {error.text}"
    )


def why_no_experiment(value: Any, sections: Sequence[str], *, overridden: bool) -> str | None:
    """Why a document is no experiment, in words; None where its keys may be judged.

    Args:
        value: of the whole document.
        sections: the names of an experiment's sections.
        overridden: whether the command line gives values too, so that the file may have none.
    """
    expected = f"expected the sections {', '.join(sections)}"
    if value is None or value == {}:
        return None if overridden else f"no experiment file: it holds no setting; {expected}"
    if not isinstance(value, Mapping):
        return f"no experiment file: {expected}; found {show(value)}"
    alike = sum(bool(get_close_matches(key, sections, cutoff=_ALIKE)) for key in value)
    if any(key in sections for key in value) or 2 * alike >= len(value):
        return None
    if value.keys() >= _ARCHITECTURE:
        return "no experiment file but an architecture, which retrain.py takes as --architecture"
    keys = ", ".join(shorten(key, 40) for key in list(value)[:_MOST_NAMED])
    more = ", ..." if len(value) > _MOST_NAMED else ""
    return f"no experiment file: {expected}; found none of them, but {keys}{more}"
