"""The derived layout beside its baselines: its files read, text table, HTML table."""

import math
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from report import html
from report.html import Column
from report.run_files import tight_layout
from utils.files import read_object
from utils.text import aligned, compact, kind_words

_TEXT = ("name", "title", "layout", "role", "matched")
_SAID = ("saving", "verdict", "latency_note", "reference", "letters")
_WIDTH = 120


@dataclass(frozen=True)
class Comparison:
    """The content of a run's `comparison.json`; `rows` has one row per network.

    `reference` is the row that others are multiples of; `letters` has the kind of each letter.
    The verdict of several seeds begins with a line for each row but the first, in their order.
    Beside the columns of the file, rows have `is_chosen`, the ends of 95% intervals `nats_low`,
    `nats_high` (over the seeds), `latency_low`, `latency_high` (over the rounds of a measurement),
    `less`, `less_low`, `less_high`: the chosen layout's nats less the row's, paired by seed, and
    `shown`: the chosen one is `better`, `worse`, or `nothing` is shown.
    """

    rows: pd.DataFrame
    saving: str
    verdict: str
    latency_note: str
    remarks: str
    reference: str
    letters: dict[str, str]

    @property
    def legend(self) -> str:
        """What the columns and the letters mean, in a sentence for each."""
        seeds, kinds = self.rows["n"].max(), self.letters.items()
        over = "one seed" if seeds == 1 else f"the mean of {seeds:.0f} seeds"
        letters = ", ".join(f"{letter} is {kind_words(kind)}" for letter, kind in kinds)
        return (
            f"Each result is {over}, on test text. (rel.) means relative to {self.reference}.\n"
            "The column matched names the costs that are within 3% of the chosen layout's.\n"
            f"A layout lists its blocks from the input to the output: {letters}."
        )

    @property
    def chosen(self) -> str | None:
        """The layout that is compared with the others."""
        names = self.rows["name"][self.rows["is_chosen"]]
        return str(names.iloc[0]) if len(names) else None


def read_comparison(run_folder: Path) -> Comparison:
    """Read `comparison.json`."""
    summary, unknown = read_object(run_folder / "comparison.json"), [math.nan] * 3
    rows = pd.DataFrame(summary["rows"])
    rows = rows.astype({column: float for column in rows if column not in _TEXT})
    known = [summary["intervals"].get(name, {}) for name in rows["name"]]
    times = [summary["latency_interval_ms"].get(name) or unknown for name in rows["name"]]
    for number, end in enumerate(("low", "high")):
        rows[f"nats_{end}"] = [one.get("nats_per_token", unknown)[number] for one in known]
        rows[f"less_{end}"] = [one.get("chosen_less_it", unknown)[1 + number] for one in known]
        rows[f"latency_{end}"] = [ends[number] for ends in times]
    rows["shown"] = [one.get("shown") for one in known]
    rows["is_chosen"] = rows["role"] == "chosen"
    less = rows["nats_per_token"][rows["is_chosen"]].mean() - rows["nats_per_token"]
    rows["less"] = less.mask(rows["is_chosen"])
    rows["matched"] = rows["matched"].mask(rows["is_chosen"], "")
    return Comparison(
        rows,
        remarks="\n".join(summary["remarks"]),
        **{key: summary[key] for key in _SAID},
    )


def perplexity_text(value: float) -> str:
    """Perplexity, of a large one four digits."""
    return f"{value:.2f}" if value < 1000 else f"{value:.4g}" if value < 1e6 else f"{value:.2e}"


def significant(value: float) -> str:
    """Three digits, zeros at the end too."""
    return f"{value:#.3g}".rstrip(".") if value < 1000 else f"{value:.0f}"


_BITS = Column("bits", "/byte", "bits_per_byte", "{:.4f}".format)
_PERPLEXITY = Column("ppl", "/token", "perplexity", perplexity_text)
_ID = Column("layout", "  id", "name")
_NUMBERS = (
    _PERPLEXITY,
    Column("ppl", "(rel.)", "relative_perplexity", "{:.3f}x".format),
    Column("loss", "nats/token", "nats_per_token", "{:.4f}".format),
    _BITS,
    Column("latency", "ms", "latency_ms", significant),
    Column("latency", "(rel.)", "relative_latency", "{:.2f}x".format),
    Column("FLOPs", "/token", "flops_per_token", compact),
    Column("params", "", "parameters", compact),
    Column("matched", "", "matched", lambda costs: costs.replace("parameters", "params") or "-"),
)
_WORD_COLUMN = Column("ppl", "/word", "word_perplexity", perplexity_text)


def _columns(comparison: Comparison) -> list[Column]:
    """The numbers; word perplexity where every row has it."""
    words = comparison.rows["word_perplexity"].notna().all()
    return [_WORD_COLUMN, *_NUMBERS] if words else [*_NUMBERS]


def text_table(comparison: Comparison) -> str:
    """The table for a terminal, with legend, verdict and latency note below it.

    It fits 120 columns: where there is no room, what the loss says too is left out.
    """
    rows, columns = comparison.rows, [_ID, *_columns(comparison)]
    for column in (_BITS, _PERPLEXITY) if _WORD_COLUMN in columns else (_BITS,):
        if max(map(len, _lines(rows, columns))) > _WIDTH:
            columns.remove(column)
    lines = _lines(rows, columns)
    table = [*lines[:2], "-" * max(map(len, lines))]
    for title, layout, line in zip(rows["title"], rows["layout"], lines[2:], strict=True):
        table += [*textwrap.wrap(f"{title}: {tight_layout(layout)}", _WIDTH), line]
    said = (comparison.remarks, comparison.saving, comparison.verdict, comparison.latency_note)
    parts = ["\n".join(table), comparison.legend, "\n".join(text for text in said if text)]
    return "\n\n".join(part for part in parts if part)


def _lines(rows: pd.DataFrame, columns: list[Column]) -> list[str]:
    """The heads and the rows as aligned text."""
    cells = [[f"  {name}", *numbers] for name, *numbers in html.cells_of(rows, columns)]
    return aligned([[one.title for one in columns], [one.unit for one in columns], *cells], 1)


def html_table(comparison: Comparison) -> html.Table:
    """The same table for the page; the chosen layout stands out."""
    text = (Column("layout", "", "title"), Column("blocks", "", "layout", tight_layout))
    columns = [*text, Column("id", "", "name"), *_columns(comparison)]
    marked = comparison.rows["is_chosen"]
    return html.table_of(comparison.rows, columns, marked, left=3, label="the comparison")
