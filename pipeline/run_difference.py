"""Where two runs of the same commands differ first: file, row, column, and both values.

Times are left out, and the commit that wrote a layout, which stands in every file of one.
"""

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import numpy as np

from utils.files import READ_ERRORS, read_npz
from utils.text import shorten, visible

TIMES = frozenset({"elapsed_s", "tokens_per_s"})
_MEASURED = frozenset({"latency_ms", "latency_interval_ms", "train_step_ms", "relative_latency"})
# Words of the column `equal` for what is measured.
_MEASURED_WORDS = ("latency", "training")
# Of pi.npz the readable arrays first: who looks for a slot wants pi and not alpha.
_ARRAYS = ("step", "pi", "alpha", "tau", "labels")
_ABSENT = object()


@dataclass(frozen=True)
class Difference:
    """The first place where a file is another: what was recorded there, and what was found here."""

    file: str
    place: str
    there: str
    here: str

    def __str__(self) -> str:
        return f"{self.file}: {self.place}: {self.there} there, {self.here} here"


Place = tuple[str, Any, Any]
# Where two contents differ first, and both values; None where they do not.
Compare = Callable[[bytes, bytes], Place | None]


def first_difference(file: str, recorded: bytes, remade: bytes) -> Difference | None:
    """Where a file of a run that was made again is another, times excepted."""
    compare = _compare_of(file)
    if compare is None or recorded == remade:
        return None
    try:
        found = compare(recorded, remade)
    except (*READ_ERRORS, csv.Error) as error:
        found = f"cannot be read ({error})", f"{len(recorded)} bytes", f"{len(remade)} bytes"
    return found and Difference(file, visible(found[0]), _shown(found[1]), _shown(found[2]))


def is_compared(file: str) -> bool:
    """Whether a file holds results, which the same commands must find again."""
    return _compare_of(file) is not None or file.endswith(".safetensors")


def tensor_difference(
    file: str, recorded: Mapping[str, str], remade: Mapping[str, str]
) -> Difference | None:
    """The first tensor, by name, whose hash is another."""
    for name in sorted(recorded.keys() | remade.keys()):
        there, here = recorded.get(name, _ABSENT), remade.get(name, _ABSENT)
        if there != here:
            return Difference(file, f"tensor {visible(name)}", _shown(there), _shown(here))
    return None


def _shown(value: Any) -> str:
    if value is _ABSENT:
        return "nothing"
    text = value if isinstance(value, str) else json.dumps(value, default=repr)
    return shorten(visible(text), 200)


def _pi(recorded: bytes, remade: bytes) -> Place | None:
    """By array, step, slot and candidate; also where the arrays are equal and the bytes are not."""
    there, here = read_npz(recorded), read_npz(remade)
    names = [*_ARRAYS, *sorted((there.keys() | here.keys()) - {*_ARRAYS})]
    for name in names:
        one, other = there.get(name), here.get(name)
        if one is None or other is None:
            if one is not other:
                return f"array {name}", *_presence(one, other)
            continue
        if (one.dtype, one.shape) != (other.dtype, other.shape):
            return f"array {name}", f"{one.dtype}{one.shape}", f"{other.dtype}{other.shape}"
        if one.tobytes() != other.tobytes():
            return _cell(name, one, other, there.get("labels"))
    return "the bytes of the file, but no array", f"{len(recorded)} bytes", f"{len(remade)} bytes"


def _presence(one: Any, other: Any) -> tuple[str, str]:
    return "nothing" if one is None else "an array", "nothing" if other is None else "an array"


def _cell(name: str, one: Any, other: Any, labels: Any) -> Place:
    # By bits, so that nan equals itself and 0.0 is not -0.0.
    bits = [np.ascontiguousarray(array).view(np.uint8) for array in (one.ravel(), other.ravel())]
    changed = (bits[0] != bits[1]).reshape(one.size, -1).any(axis=1)
    index = tuple(int(part) for part in np.unravel_index(int(changed.argmax()), one.shape))
    words = [f"array {name}", *(f"step {index[0] + 1}" for _ in index[:1])]
    if len(index) == 3:
        known = labels is not None and labels.ndim == 1 and len(labels) == one.shape[2]
        label = str(labels[index[2]]) if known else str(index[2])
        words += [f"slot {index[1]}", f"candidate {label}"]
    return ", ".join(words), one[index].item(), other[index].item()


def _metrics(recorded: bytes, remade: bytes) -> Place | None:
    """By row and column, without times."""
    there, here = ([json.loads(line) for line in text.splitlines()] for text in (recorded, remade))
    names = [[_row_name(row) for row in rows] for rows in (there, here)]
    for number, (one, other) in enumerate(zip(there, here, strict=False), start=1):
        if names[0][number - 1] != names[1][number - 1]:
            return f"row {number}", names[0][number - 1], names[1][number - 1]
        if (found := _json_at("", one, other, TIMES)) is not None:
            path, *values = found
            return f"row {number} ({names[0][number - 1]}), column {path}", *values
    return None if len(there) == len(here) else ("number of rows", len(there), len(here))


def _row_name(row: Mapping[str, Any]) -> str:
    return (
        " ".join(str(row[key]) for key in ("kind", "net") if key in row) + f", step {row['step']}"
    )


def _json(ignored: frozenset[str], recorded: bytes, remade: bytes) -> Place | None:
    """By dotted key; the ignored keys are names, or end of a dotted one, wherever they stand."""
    return _json_at("", json.loads(recorded), json.loads(remade), ignored)


def _json_at(path: str, one: Any, other: Any, ignored: frozenset[str]) -> Place | None:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in [*one, *(key for key in other if key not in one)]:
            place = f"{path}.{key}" if path else key
            if key in ignored or place in ignored:
                continue
            pair = one.get(key, _ABSENT), other.get(key, _ABSENT)
            if (found := _json_at(place, *pair, ignored)) is not None:
                return found
        return None
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for at, pair in enumerate(zip(one, other, strict=True)):
            if (found := _json_at(f"{path}[{at}]", *pair, ignored)) is not None:
                return found
        return None
    if path.rpartition(".")[2] == "equal":
        one, other = _counted_words(one), _counted_words(other)
    # Not ==: 1 is not 1.0 here, and nan equals itself.
    absent = _ABSENT in (one, other)
    same = one is other if absent else json.dumps(one) == json.dumps(other)
    return None if same else (path, one, other)


def _counted_words(value: Any) -> Any:
    """The words of the column `equal` but those of what was measured."""
    words = value.split() if isinstance(value, str) else None
    return value if words is None else " ".join(w for w in words if w not in _MEASURED_WORDS)


def _table(ignored: frozenset[str], recorded: bytes, remade: bytes) -> Place | None:
    """By row, named by its first cell, and column."""
    tables = [list(csv.DictReader(io.StringIO(text.decode()))) for text in (recorded, remade)]
    for number, (one, other) in enumerate(zip(*tables, strict=False), start=1):
        if (found := _json_at("", one, other, ignored)) is not None:
            column, *values = found
            return f"row {number} ({next(iter(one.values()), '')}), column {column}", *values
    there, here = map(len, tables)
    return None if there == here else ("number of rows", there, here)


_LAYOUT_JSON = partial(_json, frozenset({"provenance.commit", "costs.times"}))
_COMPARED: Sequence[tuple[str, Compare]] = (
    ("pi.npz", _pi),
    ("metrics.jsonl", _metrics),
    ("result.json", partial(_json, TIMES)),
    ("identity.json", partial(_json, frozenset())),
    ("architecture.json", _LAYOUT_JSON),
    ("architectures/*.json", _LAYOUT_JSON),
    ("architectures/*.csv", partial(_table, frozenset())),
    ("pi.csv", partial(_table, frozenset())),
    ("cost.csv", partial(_table, frozenset())),
    ("search/seed-*/caveats.json", partial(_json, frozenset())),
    ("comparison.csv", partial(_table, _MEASURED)),
    (
        "comparison.json",
        # The remarks name measured shares, and programs.
        partial(_json, _MEASURED | TIMES | {"verdict", "remarks", "latency_note", "latency_key"}),
    ),
    ("pareto.csv", partial(_table, frozenset({"cost", "times_reference"}))),
    ("pareto.json", partial(_json, frozenset())),
)


def _compare_of(file: str) -> Compare | None:
    """How a file is compared: by its name in any folder, or by its path; None: it is not."""
    for pattern, compare in _COMPARED:
        if fnmatchcase(file if "/" in pattern else file.rpartition("/")[2], pattern):
            return compare
    return None


def in_order(files: Sequence[str]) -> Iterator[str]:
    """Files in the order in which a run writes them, so that the first difference is a cause."""
    steps = ("search/", "architecture", "retrain/", "model/", "pareto", "comparison")
    kinds = ("identity.json", "metrics.jsonl", "pi.npz")

    def place(file: str) -> tuple[int, str, int, list[str]]:
        step = next((at for at, start in enumerate(steps) if file.startswith(start)), len(steps))
        folder, _, name = file.rpartition("/")
        kind = kinds.index(name) if name in kinds else len(kinds)
        return step, folder, kind, re.split(r"(\d+)", name)

    yield from sorted(files, key=place)
