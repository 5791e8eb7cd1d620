"""Sections, tables and pictures of a page, and the Jinja2 templates that they are shown by.

The templates escape every text, so a label or a path from a file never becomes markup.
"""

import base64
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from report.plotting import text_on
from utils.files import write_whole


@dataclass(frozen=True)
class Section:
    """A part of the page under its own h2; `key` is what links lead to."""

    key: str
    title: str
    body: Markup


@dataclass(frozen=True)
class Table:
    """A table; the first `left` columns hold text, the others numbers.

    `head` has title and unit of each column; a row has its cells, and before them whether it
    stands out. `label` is what the table is about.
    """

    head: Sequence[tuple[str, str]]
    rows: Sequence[tuple[bool, list[str]]]
    left: int
    label: str


@dataclass(frozen=True)
class Column:
    """A column of a table: title and unit, the key of its values, and how one is written."""

    title: str
    unit: str
    key: str
    show: Callable[[Any], str] = str


def cells_of(rows: pd.DataFrame, columns: Sequence[Column]) -> list[list[str]]:
    """The cells of each row as text; a dash where nothing is known."""
    return [
        ["-" if pd.isna(row.get(one.key)) else one.show(row[one.key]) for one in columns]
        for row in rows.to_dict("records")
    ]


def table_of(
    rows: pd.DataFrame, columns: Sequence[Column], marked: Iterable[bool], *, left: int, label: str
) -> Table:
    """A table of the rows, of which those that are `marked` stand out."""
    head = [(one.title, one.unit) for one in columns]
    return Table(head, list(zip(marked, cells_of(rows, columns), strict=True)), left, label)


@dataclass(frozen=True)
class Picture:
    """A picture inside the page; `alt` says what is seen to those who do not see it."""

    content: bytes
    caption: str
    alt: str

    @property
    def source(self) -> str:
        """The PNG as an address that loads nothing."""
        return source_of(self.content)


def source_of(content: bytes, kind: str = "png") -> str:
    """A picture as an address that loads nothing."""
    return f"data:image/{kind};base64,{base64.b64encode(content).decode('ascii')}"


def render(template: str, **values: Any) -> Markup:
    """Fill a template of `report/templates`."""
    return Markup(_templates().get_template(template).render(**values))


def exhibit(
    key: str,
    title: str,
    table: Table | None = None,
    *,
    verdict: Sequence[str] = (),
    caveats: Sequence[str] = (),
    notes: Sequence[str] = (),
    pictures: Sequence[Picture] = (),
) -> Section:
    """A section of a verdict, caveats, a table, notes and pictures, as far as it has them."""
    shown = {"verdict": verdict, "caveats": caveats, "notes": notes, "pictures": pictures}
    return Section(key, title, render("exhibit.html.j2", table=table, **shown))


def write_page(path: Path, title: str, sections: Sequence[Section | None], block_px: int) -> Path:
    """Write a page of the sections that there are, the answer first; stacks have blocks so high."""
    shown = [section for section in sections if section is not None]
    page = render("page.html.j2", title=title, sections=shown, block_px=block_px)
    return write_whole(path, page)


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.tests["known"] = pd.notna
    environment.filters["ink"] = text_on
    return environment
