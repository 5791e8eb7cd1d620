"""The derived layout beside its opponents: text table, figures, HTML table."""

import io
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from report import html
from report.plotting import SEARCHED, compact, house_style, make_figure, margins, name_points, room
from report.run_files import read_json
from utils.text import aligned, shorten

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
_MAY_BE_EMPTY = ("latency_ms", "bits_per_byte", "valid_nats_per_token", _WORD_PERPLEXITY)
# As wide as a digit, and HTML keeps it.
_BLANK = "\u2007"
_WIDTH, _SHORTEST_NAME, _LAYOUT_LENGTH = 100, 9, 16
_LAYOUT_BESIDE_WORDS = 7  # where word perplexity takes a column of the 100
_MARKS = {
    "searched": ("*", SEARCHED, 13.0),
    "front": ("s", "#009e73", 6.5),
    "opponent": ("o", "#0072b2", 6.5),
}


@dataclass(frozen=True)
class Comparison:
    """The rows of `comparison.csv`, one per network, and what `comparison.json` says."""

    rows: pd.DataFrame
    verdict: str
    latency_note: str
    remarks: str

    @property
    def reference(self) -> pd.Series:
        """The row that others are multiples of: the plain Transformer-XL, else the first."""
        plain = self.rows[self.rows["name"] == REFERENCE]
        return plain.iloc[0] if len(plain) else self.rows.iloc[0]

    @property
    def searched(self) -> str | None:
        """The layout that was searched and is compared with the others."""
        names = self.rows["name"][self.rows["role"] == "searched"]
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
    )


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
    if _WORD_PERPLEXITY not in frame:
        frame[_WORD_PERPLEXITY] = ""
    for name in (*_NUMBERS, _WORD_PERPLEXITY):
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


REFERENCE = "interleaved"
_LEFT = 2  # columns of text
# Columns that are shown beside the reference's, by title.
_MULTIPLES = {"latency": "latency_ms", "perplexity": "perplexity"}
_COLUMNS = (
    _Column("name", "", lambda row: str(row["name"])),
    _Column("layout", "", lambda row: tight_layout(str(row["layout"]))),
    _Column("n", "", _number("n", lambda value: f"{value:.0f}")),
    _Column("params", "", _number("parameters", compact)),
    _Column("FLOPs", "per token", _number("flops_per_token", compact)),
    _Column("nats", "per token", _number("nats_per_token", lambda value: f"{value:.4f}")),
    _Column("latency", "ms", _number("latency_ms", lambda value: f"{value:.3g}")),
    _Column("perplexity", "per token", _number("perplexity", _perplexity)),
    _Column("bits", "per byte", _number("bits_per_byte", lambda value: f"{value:.4f}")),
)
_WORD_COLUMN = _Column("ppl", "per word", _number(_WORD_PERPLEXITY, _perplexity))


def _columns(comparison: Comparison) -> tuple[_Column, ...]:
    """With multiples of the reference's, and word perplexity where every row has it."""
    rows = comparison.rows
    if not len(rows):
        return _COLUMNS
    columns = tuple(
        replace(column, show=_with_multiple(column.show, _MULTIPLES[column.title], comparison))
        if column.title in _MULTIPLES
        else column
        for column in _COLUMNS
    )
    return (*columns, _WORD_COLUMN) if rows[_WORD_PERPLEXITY].notna().all() else columns


def _with_multiple(
    show: Callable[[pd.Series], str], name: str, comparison: Comparison
) -> Callable[[pd.Series], str]:
    """A number and how many times the reference's it is."""
    one_x = float(comparison.reference[name])

    def beside(row: pd.Series) -> str:
        times = float(row[name]) / one_x if one_x else math.nan
        return f"{show(row)} {times:.3f}x" if math.isfinite(times) else show(row)

    return beside


def tight_layout(layout: str) -> str:
    """A layout of single letters without the spaces between them: 'a d i' is 'adi'."""
    letters = layout.split()
    return "".join(letters) if all(len(letter) == 1 for letter in letters) else layout


def text_table(comparison: Comparison) -> str:
    """The table for a terminal, with the verdict and the latency note below it.

    It fits 100 columns; layouts too long for that stand below the table, whole.
    """
    rows, columns = [row for _, row in comparison.rows.iterrows()], _columns(comparison)
    longest_layout = _LAYOUT_BESIDE_WORDS if _WORD_COLUMN in columns else _LAYOUT_LENGTH
    cells = [[column.show(row) for column in columns] for row in rows]
    long_layouts = [
        f"  {row['name']}: {row['layout']}"
        for row in rows
        if len(tight_layout(str(row["layout"]))) > longest_layout
    ]
    for row in cells:
        row[1] = row[1] if len(row[1]) <= longest_layout else "(below)"
    cells = [[c.title for c in columns], [c.unit for c in columns], *cells]
    too_wide = max(map(len, aligned(cells, _LEFT))) - _WIDTH
    if too_wide > 0:
        longest = max(len(row[0]) for row in cells)
        for row in cells:
            row[0] = shorten(row[0], max(longest - too_wide, _SHORTEST_NAME))
    lines = aligned(cells, _LEFT)
    rule = "-" * max(map(len, lines))
    parts = ["\n".join([*lines[:2], rule, *lines[2:]])]
    if long_layouts:
        parts.append("\n".join(["layouts:", *long_layouts]))
    texts = (comparison.remarks, comparison.verdict, comparison.latency_note)
    below = "\n".join(text for text in texts if text)
    return "\n\n".join([*parts, below] if below else parts)


def html_table(comparison: Comparison) -> str:
    """The same table as HTML; the searched layout stands out."""
    columns, rows = _columns(comparison), []
    for _, row in comparison.rows.iterrows():
        cells = [column.show(row) for column in columns]
        # Blanks stay in numbers, so that they stand below each other.
        cells[_LEFT:] = [cell.replace(" ", _BLANK) for cell in cells[_LEFT:]]
        rows.append(("searched" if row["role"] == "searched" else "", cells))
    return html.table([(column.title, column.unit) for column in columns], rows, left=_LEFT)


def measure_of(comparison: Comparison) -> str:
    """What the figure shows: bits per byte, or nats per token where text may be lost."""
    return "nats per token" if comparison.rows["bits_per_byte"].isna().all() else "bits per byte"


def scatter(comparison: Comparison) -> Figure:
    """What each layout costs and how well it predicts; down and left is better."""
    rows = comparison.rows
    measure = measure_of(comparison)
    x = rows["flops_per_token"].to_numpy(float)
    y = rows[measure.replace(" ", "_")].to_numpy(float)
    drawn = np.isfinite(x) & np.isfinite(y)
    with house_style():
        figure = make_figure(7.6, 4.0)
        axes = figure.subplots()
        margins(figure, left=0.85, right=0.25, top=0.45, bottom=0.55)
        for role, (mark, colour, size) in _MARKS.items():
            chosen = drawn & (rows["role"] == role).to_numpy()
            if chosen.any():
                label = role if chosen.sum() == 1 or role == "searched" else f"{role}s"
                axes.plot(
                    x[chosen], y[chosen], mark, color=colour, markersize=size,
                    markeredgecolor="white", markeredgewidth=0.6,
                    zorder=4 if role == "searched" else 3, label=label,
                )  # fmt: skip
        _finish(axes, measure)
        if drawn.any():
            axes.set_xlim(_limits(x[drawn], 0.2))
            axes.set_ylim(_limits(y[drawn], 0.15))
            name_points(axes, list(rows["name"][drawn]), x[drawn], y[drawn])
    return figure


def _limits(values: np.ndarray, share: float) -> tuple[float, float]:
    """Both ends of an axis with room for names."""
    low, high = float(values.min()), float(values.max())
    return low - room(low, high, share), high + room(low, high, share)


def _finish(axes: Axes, measure: str) -> None:
    axes.set_xlabel("FLOPs per token (forward)")
    axes.set_ylabel(f"test {measure}")
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))
    axes.yaxis.set_major_locator(MaxNLocator(6))
    axes.ticklabel_format(axis="y", useOffset=False)
    axes.grid()
    axes.set_title("lower and further left is better", loc="left", color="#666666")
    if axes.get_lines():
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, borderaxespad=0.2)
