"""What one line of a journal must hold, so that Optuna can replay it."""

import json
from typing import Any

_NUMBER = (int, float)
_NONE = type(None)

# The fields of each operation, by its code (JournalOperation in optuna/storages/journal).
_FIELDS: list[dict[str, Any]] = [
    {"study_name": str, "directions": list},
    {"study_id": int},
    {"study_id": int, "user_attr": dict},
    {"study_id": int, "system_attr": dict},
    {"study_id": int, "datetime_start": (str, _NONE)},
    {"trial_id": int, "param_name": str, "param_value_internal": _NUMBER, "distribution": str},
    {"trial_id": int, "state": int, "values": (list, _NONE)},
    {"trial_id": int, "step": int, "intermediate_value": _NUMBER},
    {"trial_id": int, "user_attr": dict},
    {"trial_id": int, "system_attr": dict},
    {},
]


class Torn(ValueError):
    """The text is no whole JSON: a write that was not finished may have left it."""


def check_record(line: bytes) -> None:
    """Refuse a line that Optuna could not replay.

    Args:
        line: with or without its line end.

    Raises:
        Torn: it is not JSON.
        ValueError: it is JSON of something else than a record.
    """
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Torn(f"no JSON: {str(error) or type(error).__name__}") from None
    if not isinstance(record, dict):
        raise ValueError("no object")
    _require(record, {"op_code": int, "worker_id": str})
    code = record["op_code"]
    if not 0 <= code < len(_FIELDS):
        raise ValueError(f"op_code is {code}, expected 0 to {len(_FIELDS) - 1}")
    _require(record, _FIELDS[code])
    for name in ("user_attr", "system_attr"):
        if name in _FIELDS[code] and len(record[name]) != 1:
            raise ValueError(f"{name} holds {len(record[name])} attributes, expected 1")


def _require(record: dict[str, Any], fields: dict[str, Any]) -> None:
    for name, kinds in fields.items():
        if name not in record:
            raise ValueError(f"{name} is missing")
        if isinstance(record[name], bool) or not isinstance(record[name], kinds):
            raise ValueError(f"{name} is of type {type(record[name]).__name__}")
