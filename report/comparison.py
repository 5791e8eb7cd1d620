"""The derived layout beside its opponents: its files read, text table, HTML table."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from report import html
from report.run_files import read_json, reading, tight_layout
from utils.text import aligned, compact, shorten

Interval = tuple[float, float]
_TEXT = ("name", "layout", "role", "equal")
_WIDTH, _SHORTEST_NAME = 100, 9
_LONGEST_LAYOUT = 16  # in the table of a terminal
_LONGEST_CELL = 40  # of a layout on the page
# The layout that is compared with the others: a search's answer, or another derivation's.
CHOSEN_ROLES = ("searched", "chosen")


@dataclass(frozen=True)
class Comparison:
    """The content of a run's `comparison.json`; `rows` has one row per network.

    `reference` is the row that others are multiples of. Intervals are by the name of the row, of
    95%: `intervals` over the seeds, where there are several, `latency_intervals` over the rounds
    of one measurement.
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
        ends = self.intervals.get(name, {}).get("nats_per_token")
        return (ends[0], ends[1]) if ends else None

    def latency_interval(self, name: str) -> Interval | None:
        """Of a row's latency over the rounds of its measurement."""
        ends = self.latency_intervals.get(name)
        return (ends[0], ends[1]) if ends else None

    @property
    def legend(self) -> str:
        """Meaning of the columns beside the reference and the first row, in a line."""
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
    """Read `comparison.json`.

    Raises:
        ValueError: the file is broken; the message names it.
    """
    path = run_folder / "comparison.json"
    summary = read_json(path)
    with reading(path):
        rows = pd.DataFrame(summary["rows"])
        numbers = [column for column in rows if column not in _TEXT]
        return Comparison(
            rows.astype(dict.fromkeys(numbers, float)),
            verdict=summary["verdict"],
            latency_note=summary["latency_note"],
            remarks="\n".join(summary["remarks"]),
            reference=summary["reference"],
            intervals=summary["intervals"],
            latency_intervals=summary["latency_interval_ms"],
        )


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
    return "".join(word[0].upper() for word in str(row["equal"]).split()) or "-"


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
_WORD_COLUMN = _Column("ppl", "/word", _number("word_perplexity", _perplexity))
# Beside the reference and the first row.
_BESIDE = (
    _Column("latency", "x", _number("relative_latency", lambda value: f"{value:.2f}")),
    _Column("ppl", "x", _number("relative_perplexity", lambda value: f"{value:.3f}")),
    _Column("=", "", _letters),
)


def _columns(comparison: Comparison) -> tuple[_Column, ...]:
    """Word perplexity where every row has it; what is beside the reference, where there is one."""
    words = len(comparison.rows) and comparison.rows["word_perplexity"].notna().all()
    beside = _BESIDE if comparison.legend else ()
    return (*_COLUMNS, *((_WORD_COLUMN,) if words else ()), *beside)


def text_table(comparison: Comparison) -> str:
    """The table for a terminal, with the verdict and the latency note below it.

    It fits 100 columns: layouts too long for it stand below the table, whole, and where that is
    not enough, what nats say too is left out.
    """
    rows = [row for _, row in comparison.rows.iterrows()]
    columns = list(_columns(comparison))
    cells = _cells(columns, rows)
    # Nats say the perplexity of a token too.
    for column in (_BITS, _PERPLEXITY) if _WORD_COLUMN in columns else (_BITS,):
        if _width(cells) > _WIDTH:
            columns.remove(column)
            cells = _cells(columns, rows)
    longest = max(len(row[0]) for row in cells) - max(0, _width(cells) - _WIDTH)
    for row in cells:
        row[0] = shorten(row[0], max(longest, _SHORTEST_NAME))
    lines = aligned(cells, _LEFT)
    parts = ["\n".join([*lines[:2], "-" * max(map(len, lines)), *lines[2:]])]
    layouts = {str(row["name"]): str(row["layout"]) for row in rows}
    below = [
        f"  {name}: {layout}"
        for name, layout in layouts.items()
        if len(tight_layout(layout)) > _LONGEST_LAYOUT
    ]
    if below:
        parts.append("\n".join(["layouts:", *below]))
    texts = (comparison.legend, comparison.remarks, comparison.verdict, comparison.latency_note)
    parts.append("\n".join(text for text in texts if text))
    return "\n\n".join(part for part in parts if part)


def _cells(columns: Sequence[_Column], rows: list[pd.Series]) -> list[list[str]]:
    """The heads and the rows as text; a layout that is longer stands elsewhere."""
    cells = [[column.show(row) for column in columns] for row in rows]
    for row in cells:
        row[1] = row[1] if len(row[1]) <= _LONGEST_LAYOUT else "below"
    return [[column.title for column in columns], [column.unit for column in columns], *cells]


def _width(cells: list[list[str]]) -> int:
    return max(map(len, aligned(cells, _LEFT)))


def html_table(comparison: Comparison) -> html.Table:
    """The same table for the page; the chosen layout stands out."""
    columns, rows = _columns(comparison), []
    for _, row in comparison.rows.iterrows():
        cells = [column.show(row) for column in columns]
        if len(cells[1]) > _LONGEST_CELL:  # the page draws every layout
            cells[1] = f"{len(str(row['layout']).split())} slots"
        rows.append((row["role"] in CHOSEN_ROLES, cells))
    head = [(column.title, column.unit) for column in columns]
    return html.Table(head, rows, left=_LEFT, label="the comparison")
