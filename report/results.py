"""What retraining found, one row per layout and seed."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from report import html
from report.plotting import compact
from report.run_files import read_json, seed_folders
from utils.text import duration

_HEAD = (
    ("name", ""),
    ("seed", ""),
    ("steps", ""),
    ("parameters", ""),
    ("FLOPs", "per token"),
    ("validation", "nats per token"),
    ("test", "nats per token"),
    ("test", "perplexity"),
    ("test", "bits per byte"),
    ("test", "word perplexity"),
    ("time", "with validation"),
)


def result_row(path: Path) -> list[str]:
    """The cells of one `result.json`.

    Raises:
        ValueError: the file is damaged.
    """
    result = read_json(path)
    valid, test = result.get("valid"), result.get("test")
    for name, scores in (("valid", valid), ("test", test)):
        if scores is not None and not isinstance(scores, dict):
            raise ValueError(f"{path}: {name}: expected an object, found {scores!r}")
    elapsed_s = _number(path, result, "elapsed_s")
    return [
        str(result.get("name", path.parent.parent.name)),
        str(result.get("seed", path.parent.name.removeprefix("seed-"))),
        _shown(path, result, "steps", "{:.0f}"),
        _shown(path, result, "parameters"),
        _shown(path, result, "flops_per_token"),
        _shown(path, valid or {}, "nats_per_token", "{:.4f}"),
        _shown(path, test or {}, "nats_per_token", "{:.4f}"),
        _shown(path, test or {}, "perplexity", "{:.2f}"),
        _shown(path, test or {}, "bits_per_byte", "{:.4f}"),
        _shown(path, test or {}, "word_perplexity", "{:.2f}"),
        "-" if elapsed_s is None else duration(elapsed_s),
    ]


def result_table(rows: Sequence[Sequence[str]]) -> str:
    """The rows as HTML; the column of word perplexity only where a row has one."""
    words = _HEAD.index(("test", "word perplexity"))
    kept = [i for i in range(len(_HEAD)) if i != words or any(row[i] != "-" for row in rows)]
    shown = [("", [row[i] for i in kept]) for row in rows]
    return html.table([_HEAD[i] for i in kept], shown, left=1)


def same_trainings(folders: Sequence[Path]) -> dict[Path, Path]:
    """Which folders of a run's `retrain/` hold another one's network, trained alike to the end.

    Args:
        folders: of two that are alike the first is the one that is shown.

    Raises:
        ValueError: a result is damaged.
    """
    shown: dict[tuple[Any, ...], Path] = {}
    twins = {}
    for folder in folders:
        known = [read_json(path / "result.json") for path in seed_folders(folder)
                 if (path / "result.json").exists()]  # fmt: skip
        # A result of an older version does not say which network it is of.
        if known and all("network" in result for result in known):
            key = tuple(
                (str(each["network"]), str(each.get("seed")), str(each.get("test")))
                for each in known
            )
            if shown.setdefault(key, folder) != folder:
                twins[folder] = shown[key]
    return twins


def _number(path: Path, values: Mapping[str, Any], key: str) -> float | None:
    value = values.get(key)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise ValueError(f"{path}: {key}: expected a number, found {value!r}")
    return value


def _shown(path: Path, values: Mapping[str, Any], key: str, form: str | None = None) -> str:
    value = _number(path, values, key)
    if value is None:
        return "-"
    return form.format(value) if form else compact(value)
