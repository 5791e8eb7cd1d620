"""The derived layout beside its opponents: its files read, text table, HTML table."""

import io
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from report import html
from report.architectures import as_number
from report.run_files import read_json
from utils.text import aligned, compact, shorten

Interval = tuple[float, float]
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
_WORD_PERPLEXITY = "word_perplexity"
_LATENCY_TIMES, _PERPLEXITY_TIMES = "relative_latency", "relative_perplexity"
# What a file of an older version lacks; `equal` is text.
_ADDED = (_WORD_PERPLEXITY, _LATENCY_TIMES, _PERPLEXITY_TIMES)
_MAY_BE_EMPTY = ("latency_ms", "bits_per_byte", "valid_nats_per_token", *_ADDED)
_EQUAL = "equal"
_WIDTH, _SHORTEST_NAME = 100, 9
# Layouts up to so long stand in the table; the second where the first leaves no room.
_LAYOUT_LENGTHS = (16, 7)
_LONGEST_CELL = 40  # of a layout on the page
# The layout that is compared with the others: a search's answer, or another derivation's.
CHOSEN_ROLES = ("searched", "chosen")


def interval_of(value: Any, numbers: int = 2) -> Interval | None:
    """Low and high, which are the last two of so many numbers of a file."""
    if not isinstance(value, list) or len(value) != numbers:
        return None
    low, high = (as_number(end) for end in value[-2:])
    return None if low is None or high is None else (low, high)


@dataclass(frozen=True)
class Comparison:
    """The rows of `comparison.csv`, one per network, and what `comparison.json` says.

    `reference` is the row that others are multiples of; older files have none. Intervals are by
    the name of the row, of 95%: `intervals` over the seeds, `latency_intervals` over the rounds of
    one measurement; a file of an older version, or of one seed, has none.
    """

    rows: pd.DataFrame
    verdict: str
    latency_note: str
    remarks: str
    reference: str
    intervals: Mapping[str, Any] = field(default_factory=dict)
    latency_intervals: Mapping[str, Any] = field(default_factory=dict)

    def nats_interval(self, name: str) -> Interval | None:
        """Of a row's nats over its seeds."""
        known = self.intervals.get(name)
        return interval_of(known.get("nats_per_token")) if isinstance(known, Mapping) else None

    def latency_interval(self, name: str) -> Interval | None:
        """Of a row's latency over the rounds of its measurement."""
        return interval_of(self.latency_intervals.get(name))

    @property
    def legend(self) -> str:
        """What stands in the columns beside the reference and the first row, in a line."""
        if not self.reference or not len(self.rows):
            return ""
        return (
            f"x: of {self.reference}; =: the first row's, within 3%, in P parameters, F FLOPs, "
            "L latency, T training"
        )

    @property
    def chosen(self) -> str | None:
        """The layout that is compared with the others."""
        names = self.rows["name"][self.rows["role"].isin(CHOSEN_ROLES)]
        return str(names.iloc[0]) if len(names) else None


def read_comparison(run_folder: Path) -> Comparison:
    """Read `comparison.csv`, and the verdict from `comparison.json` where there is one.

    Raises:
        ValueError: one of the files is damaged; the message names it, and the line.
    """
    rows = _read_rows(run_folder / "comparison.csv")
    path = run_folder / "comparison.json"
    summary = read_json(path) if path.exists() else {}
    remarks = summary.get("remarks")  # a file of an older version has none
    return Comparison(
        rows,
        verdict=str(summary.get("verdict") or ""),
        latency_note=str(summary.get("latency_note") or ""),
        remarks="\n".join(map(str, remarks)) if isinstance(remarks, list) else "",
        reference=str(summary.get("reference") or ""),
        intervals=_object(summary.get("intervals")),
        latency_intervals=_object(summary.get("latency_interval_ms")),
    )


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


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
    for name in (*_ADDED, _EQUAL):
        if name not in frame:
            frame[name] = ""
    for name in (*_NUMBERS, *_ADDED):
        column = frame[name].fillna("").str.strip()
        number = pd.to_numeric(column, errors="coerce")
        allowed = column.str.lower() == "nan"
        if name in _MAY_BE_EMPTY:
            allowed |= column == ""
        wrong = number.isna() & ~allowed
        if wrong.any():
            line = int(wrong.to_numpy().argmax()) + 2
            cell = column.iloc[line - 2]
            raise ValueError(f"{path}:{line}: {name}: expected a number, found '{cell}'")
        frame[name] = number
    return frame


@dataclass(frozen=True)
class _Column:
    title: str
    unit: str
    show: Callable[[pd.Series], str]


def _number(name: str, form: Callable[[float], str]) -> Callable[[pd.Series], str]:
    def show(row: pd.Series) -> str:
        value = float(row[name])
        return form(value) if math.isfinite(value) else "-" if math.isnan(value) else str(value)

    return show


def _perplexity(value: float) -> str:
    return f"{value:.2f}" if value < 1000 else f"{value:.4g}" if value < 1e6 else f"{value:.2e}"


def significant(value: float) -> str:
    """Three digits, zeros at the end too."""
    return f"{value:#.3g}".rstrip(".") if value < 1000 else f"{value:.0f}"


def _letters(row: pd.Series) -> str:
    """P, F, L or T for each word of the column `equal`."""
    return "".join(word[0].upper() for word in str(row[_EQUAL]).split()) or "-"


_LEFT = 2  # columns of text
_BITS = _Column("bits", "/byte", _number("bits_per_byte", lambda value: f"{value:.4f}"))
_PERPLEXITY = _Column("ppl", "/token", _number("perplexity", _perplexity))
_COLUMNS = (
    _Column("name", "", lambda row: str(row["name"])),
    _Column("layout", "", lambda row: tight_layout(str(row["layout"]))),
    _Column("n", "", _number("n", lambda value: f"{value:.0f}")),
    _Column("params", "", _number("parameters", compact)),
    _Column("FLOPs", "/token", _number("flops_per_token", compact)),
    _Column("latency", "ms", _number("latency_ms", significant)),
    _Column("nats", "/token", _number("nats_per_token", lambda value: f"{value:.4f}")),
    _BITS,
    _PERPLEXITY,
)
_WORD_COLUMN = _Column("ppl", "/word", _number(_WORD_PERPLEXITY, _perplexity))
# What a file of an older version has not.
_BESIDE = (
    _Column("latency", "x", _number(_LATENCY_TIMES, lambda value: f"{value:.2f}")),
    _Column("ppl", "x", _number(_PERPLEXITY_TIMES, lambda value: f"{value:.3f}")),
    _Column("=", "", _letters),
)


def _columns(comparison: Comparison) -> tuple[_Column, ...]:
    """Word perplexity where every row has it; what is beside other rows, where the file has it."""
    words = len(comparison.rows) and comparison.rows[_WORD_PERPLEXITY].notna().all()
    beside = _BESIDE if comparison.legend else ()
    return (*_COLUMNS, *((_WORD_COLUMN,) if words else ()), *beside)


def tight_layout(layout: str) -> str:
    """A layout of single letters without the spaces between them: 'a d i' is 'adi'."""
    letters = layout.split()
    return "".join(letters) if all(len(letter) == 1 for letter in letters) else layout


def text_table(comparison: Comparison) -> str:
    """The table for a terminal, with the verdict and the latency note below it.

    It fits 100 columns: layouts too long for it stand below the table, whole, and where that is
    not enough, what nats say too is left out.
    """
    rows = [row for _, row in comparison.rows.iterrows()]
    columns = _columns(comparison)
    # Nats say the perplexity of a token too.
    left_out: list[tuple[_Column, ...]] = [(), (_BITS,)]
    left_out += [(_BITS, _PERPLEXITY)] if _WORD_COLUMN in columns else []
    for hidden, longest_layout in itertools.product(left_out, _LAYOUT_LENGTHS):
        shown = [column for column in columns if column not in hidden]
        cells = _cells(shown, rows, longest_layout)
        too_wide = max(map(len, aligned(cells, _LEFT))) - _WIDTH
        if too_wide <= 0:
            break
    else:
        longest = max(len(row[0]) for row in cells)
        for row in cells:
            row[0] = shorten(row[0], max(longest - too_wide, _SHORTEST_NAME))
    long_layouts = [
        f"  {row['name']}: {row['layout']}"
        for row in rows
        if len(tight_layout(str(row["layout"]))) > longest_layout
    ]
    lines = aligned(cells, _LEFT)
    rule = "-" * max(map(len, lines))
    parts = ["\n".join([*lines[:2], rule, *lines[2:]])]
    if long_layouts:
        parts.append("\n".join(["layouts:", *long_layouts]))
    texts = (comparison.legend, comparison.remarks, comparison.verdict, comparison.latency_note)
    below = "\n".join(text for text in texts if text)
    return "\n\n".join([*parts, below] if below else parts)


def _cells(
    columns: Sequence[_Column], rows: list[pd.Series], longest_layout: int
) -> list[list[str]]:
    """The heads and the rows as text; a layout that is longer stands elsewhere."""
    cells = [[column.show(row) for column in columns] for row in rows]
    for row in cells:
        row[1] = row[1] if len(row[1]) <= longest_layout else "below"
    return [[column.title for column in columns], [column.unit for column in columns], *cells]


def html_table(comparison: Comparison) -> str:
    """The same table as HTML; the chosen layout stands out."""
    columns, rows = _columns(comparison), []
    for _, row in comparison.rows.iterrows():
        cells = [column.show(row) for column in columns]
        if len(cells[1]) > _LONGEST_CELL:  # the page draws every layout
            cells[1] = f"{len(str(row['layout']).split())} slots"
        rows.append(("searched" if row["role"] in CHOSEN_ROLES else "", cells))
    head = [(column.title, column.unit) for column in columns]
    return html.table(head, rows, left=_LEFT, says="the comparison")
