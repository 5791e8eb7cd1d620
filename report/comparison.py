"""The derived layout beside its opponents: text table, figure, HTML table."""

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from report import html
from report.runs import read_json
from report.style import compact, shorten

_TEXT = ("name", "layout", "role")
_NUMBERS = (
    "n",
    "parameters",
    "flops_per_token",
    "latency_ms",
    "nats_per_token",
    "perplexity",
    "bits_per_byte",
    "valid_nats_per_token",
)
_MAY_BE_EMPTY = ("latency_ms", "bits_per_byte", "valid_nats_per_token")
_WIDTH, _SHORTEST_NAME, _LAYOUT_LENGTH = 100, 10, 16


@dataclass(frozen=True)
class Comparison:
    """The rows of `comparison.csv`, one per architecture, and what `comparison.json` says."""

    rows: pd.DataFrame
    verdict: str
    latency_note: str


def read_comparison(run_folder: Path) -> Comparison:
    """Read `comparison.csv`, and the verdict from `comparison.json` where there is one.

    Raises:
        ValueError: one of the files is damaged.
    """
    rows = _read_rows(run_folder / "comparison.csv")
    said = {}
    if (run_folder / "comparison.json").exists():
        said = read_json(run_folder / "comparison.json")
    return Comparison(rows, str(said.get("verdict") or ""), str(said.get("latency_note") or ""))


def _read_rows(path: Path) -> pd.DataFrame:
    try:
        # As text first: a layout may be called nan.
        frame = pd.read_csv(
            io.BytesIO(path.read_bytes()), dtype=str, keep_default_na=False, encoding="utf-8"
        )
    except ValueError as error:  # pandas' parser errors and UnicodeDecodeError are ValueErrors
        raise ValueError(f"{path}: not a readable table ({error}); run compare.py again") from error
    missing = [name for name in (*_TEXT, *_NUMBERS) if name not in frame]
    if missing:
        raise ValueError(f"{path}: lacks the columns {', '.join(missing)}; run compare.py again")
    for name in _NUMBERS:
        column = frame[name].fillna("").str.strip()
        number = pd.to_numeric(column, errors="coerce")
        allowed = column.str.lower() == "nan"
        if name in _MAY_BE_EMPTY:
            allowed |= column == ""
        wrong = number.isna() & ~allowed
        if wrong.any():
            line = int(wrong.to_numpy().argmax()) + 2
            found = column.iloc[line - 2]
            raise ValueError(f"{path}:{line}: {name}: expected a number, found '{found}'")
        frame[name] = number
    return frame


@dataclass(frozen=True)
class _Column:
    title: str
    unit: str
    show: Callable[[pd.Series], str]
    left: bool = False


def _number(name: str, form: Callable[[float], str]) -> Callable[[pd.Series], str]:
    def show(row: pd.Series) -> str:
        value = float(row[name])
        return form(value) if math.isfinite(value) else "-" if math.isnan(value) else str(value)

    return show


def _perplexity(value: float) -> str:
    return f"{value:.2f}" if value < 1000 else f"{value:.4g}" if value < 1e6 else f"{value:.2e}"


COLUMNS = (
    _Column("name", "", lambda row: str(row["name"]), left=True),
    _Column("layout", "", lambda row: tight_layout(str(row["layout"])), left=True),
    _Column("n", "seeds", _number("n", lambda value: f"{value:.0f}")),
    _Column("parameters", "", _number("parameters", compact)),
    _Column("FLOPs", "per token", _number("flops_per_token", compact)),
    _Column("latency", "ms", _number("latency_ms", lambda value: f"{value:.3g}")),
    _Column("nats", "per token", _number("nats_per_token", lambda value: f"{value:.4f}")),
    _Column("perplexity", "per token", _number("perplexity", _perplexity)),
    _Column("bits", "per byte", _number("bits_per_byte", lambda value: f"{value:.4f}")),
)


def tight_layout(layout: str) -> str:
    """A layout of single letters without the spaces between them: 'a d i' is 'adi'."""
    letters = layout.split()
    return "".join(letters) if all(len(letter) == 1 for letter in letters) else layout


def text_table(comparison: Comparison) -> str:
    """The table for a terminal, with the verdict and the latency note below it.

    It fits 100 columns; layouts too long for that stand below the table, whole.
    """
    rows = [row for _, row in comparison.rows.iterrows()]
    cells = [[column.show(row) for column in COLUMNS] for row in rows]
    long_layouts = [
        f"  {row['name']}: {row['layout']}" for row in rows if not _fits(str(row["layout"]))
    ]
    for row in cells:
        row[1] = row[1] if _fits(row[1]) else "(below)"
    cells = [[c.title for c in COLUMNS], [c.unit for c in COLUMNS], *cells]
    too_wide = max(len(line) for line in _aligned(cells)) - _WIDTH
    if too_wide > 0:
        longest = max(len(row[0]) for row in cells)
        for row in cells:
            row[0] = shorten(row[0], max(longest - too_wide, _SHORTEST_NAME))
    lines = _aligned(cells)
    rule = "-" * max(len(line) for line in lines)
    parts = ["\n".join([*lines[:2], rule, *lines[2:]])]
    if long_layouts:
        parts.append("\n".join(["layouts:", *long_layouts]))
    said = "\n".join(text for text in (comparison.verdict, comparison.latency_note) if text)
    return "\n\n".join([*parts, said] if said else parts)


def _fits(layout: str) -> bool:
    return len(tight_layout(layout)) <= _LAYOUT_LENGTH


def _aligned(cells: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in cells) for i in range(len(COLUMNS))]
    return [
        "  ".join(
            text.ljust(width) if column.left else text.rjust(width)
            for text, width, column in zip(row, widths, COLUMNS, strict=True)
        ).rstrip()
        for row in cells
    ]


def html_table(comparison: Comparison) -> str:
    """The same table as HTML; the searched layout stands out."""
    rows = [
        ("searched" if row["role"] == "searched" else "", [column.show(row) for column in COLUMNS])
        for _, row in comparison.rows.iterrows()
    ]
    left = sum(column.left for column in COLUMNS)
    return html.table([(column.title, column.unit) for column in COLUMNS], rows, left=left)
