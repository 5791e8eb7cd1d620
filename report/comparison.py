"""The derived layout beside its baselines: its files read, text table, HTML table."""

import math
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from report import html
from report.html import Column
from report.run_files import reading, tight_layout
from utils.files import read_object
from utils.text import aligned, compact, shorten, wrapped

_TEXT = ("name", "layout", "role", "equal")
_WIDTH, _SHORTEST_NAME = 100, 9
_LAYOUT = 12  # columns of a layout, in the table of a terminal
# The layout that is compared with the others: a search's answer, or another derivation's.
CHOSEN_ROLES = ("searched", "chosen")


@dataclass(frozen=True)
class Comparison:
    """The content of a run's `comparison.json`; `rows` has one row per network.

    `reference` is the row that others are multiples of. Beside the columns of the file are:

    - `is_chosen`: the layout that is compared with the others
    - `nats_low`, `nats_high`, `latency_low`, `latency_high`: ends of 95% intervals, over the seeds
      and over the rounds of one measurement
    - `less`, `less_low`, `less_high`: the chosen layout's nats less the row's, paired by seed
    - `shown`: what follows of all that are compared, the chosen one is `better`, `worse`, or
      `nothing` is shown
    """

    rows: pd.DataFrame
    verdict: str
    latency_note: str
    remarks: str
    reference: str

    @property
    def legend(self) -> str:
        """Meaning of the columns beside the reference and the first row, in a line."""
        if not self.reference:
            return ""
        equal = "the first row's, within 3%, in P parameters, F FLOPs, L latency"
        return f"x: of {self.reference}; =: {equal}"

    @property
    def chosen(self) -> str | None:
        """The layout that is compared with the others."""
        names = self.rows["name"][self.rows["is_chosen"]]
        return str(names.iloc[0]) if len(names) else None


def read_comparison(run_folder: Path) -> Comparison:
    """Read `comparison.json`."""
    path, unknown = run_folder / "comparison.json", [math.nan] * 3
    summary = read_object(path)
    with reading(path):
        rows = pd.DataFrame(summary["rows"])
        rows = rows.astype({column: float for column in rows if column not in _TEXT})
        known = [summary["intervals"].get(name, {}) for name in rows["name"]]
        times = [summary["latency_interval_ms"].get(name) or unknown for name in rows["name"]]
        for number, end in enumerate(("low", "high")):
            rows[f"nats_{end}"] = [one.get("nats_per_token", unknown)[number] for one in known]
            rows[f"less_{end}"] = [one.get("chosen_less_it", unknown)[1 + number] for one in known]
            rows[f"latency_{end}"] = [ends[number] for ends in times]
        rows["shown"] = [one.get("shown") for one in known]
        rows["is_chosen"] = rows["role"].isin(CHOSEN_ROLES)
        less = rows["nats_per_token"][rows["is_chosen"]].mean() - rows["nats_per_token"]
        rows["less"] = less.mask(rows["is_chosen"])
        return Comparison(
            rows,
            verdict=summary["verdict"],
            latency_note=summary["latency_note"],
            remarks="\n".join(summary["remarks"]),
            reference=summary["reference"],
        )


def _perplexity(value: float) -> str:
    return f"{value:.2f}" if value < 1000 else f"{value:.4g}" if value < 1e6 else f"{value:.2e}"


def significant(value: float) -> str:
    """Three digits, zeros at the end too."""
    return f"{value:#.3g}".rstrip(".") if value < 1000 else f"{value:.0f}"


def _letters(words: str) -> str:
    """P, F or L for each word of the column `equal`."""
    return "".join(word[0].upper() for word in words.split()) or "-"


_LEFT = 2  # columns of text
_BITS = Column("bits", "/byte", "bits_per_byte", "{:.4f}".format)
_PERPLEXITY = Column("ppl", "/token", "perplexity", _perplexity)
_COLUMNS = (
    Column("name", "", "name"),
    Column("layout", "", "layout", tight_layout),
    Column("n", "", "n", "{:.0f}".format),
    Column("params", "", "parameters", compact),
    Column("FLOPs", "/token", "flops_per_token", compact),
    Column("latency", "ms", "latency_ms", significant),
    Column("nats", "/token", "nats_per_token", "{:.4f}".format),
    _BITS,
    _PERPLEXITY,
)
_WORD_COLUMN = Column("ppl", "/word", "word_perplexity", _perplexity)
# Beside the reference and the first row.
_BESIDE = (
    Column("latency", "x", "relative_latency", "{:.2f}".format),
    Column("ppl", "x", "relative_perplexity", "{:.3f}".format),
    Column("=", "", "equal", _letters),
)


def _columns(comparison: Comparison) -> list[Column]:
    """Word perplexity where every row has it; what is beside the reference, where there is one."""
    words = comparison.rows["word_perplexity"].notna().all()
    beside = _BESIDE if comparison.legend else ()
    return [*_COLUMNS, *((_WORD_COLUMN,) if words else ()), *beside]


def text_table(comparison: Comparison) -> str:
    """The table for a terminal, with the verdict and the latency note below it.

    It fits 100 columns: a long layout goes on in the lines under its row, and where that is not
    enough, what nats say too is left out.
    """
    columns = _columns(comparison)
    cells = _cells(comparison, columns)
    for column in (_BITS, _PERPLEXITY) if _WORD_COLUMN in columns else (_BITS,):
        if _width(cells) > _WIDTH:
            columns.remove(column)
            cells = _cells(comparison, columns)
    longest = max(len(row[0]) for row in cells) - max(0, _width(cells) - _WIDTH)
    for row in cells:
        row[0] = shorten(row[0], max(longest, _SHORTEST_NAME))
    lines = aligned(cells, _LEFT)
    parts = ["\n".join([*lines[:2], "-" * max(map(len, lines)), *lines[2:]])]
    texts = (comparison.legend, comparison.remarks, comparison.verdict, comparison.latency_note)
    parts.append("\n".join(text for text in texts if text))
    return "\n\n".join(part for part in parts if part)


def _cells(comparison: Comparison, columns: list[Column]) -> list[list[str]]:
    """The heads and the rows as text."""
    cells = wrapped(html.cells_of(comparison.rows, columns), 1, _LAYOUT)
    return [[column.title for column in columns], [column.unit for column in columns], *cells]


def _width(cells: list[list[str]]) -> int:
    return max(map(len, aligned(cells, _LEFT)))


def html_table(comparison: Comparison) -> html.Table:
    """The same table for the page, which draws every layout; the chosen one stands out."""
    rows, columns = comparison.rows, _columns(comparison)
    return html.table_of(rows, columns, rows["is_chosen"], left=_LEFT, label="the comparison")
