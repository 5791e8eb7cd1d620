"""Pieces of the page. Every text that comes from a file passes through `escape`."""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from report.style import style_sheet


@dataclass(frozen=True)
class Section:
    """A part of the page under its own h2; `key` is what links lead to."""

    key: str
    title: str
    body: str
    shape: str = ""  # a class of the style sheet


def page(title: str, sections: Sequence[Section], *, rules: str = "", script: str = "") -> str:
    """The whole document: the first section, links to the others, and these.

    `rules` are added to the style sheet; `script` is the page's only script.
    """
    style = style_sheet(rules)
    # Between them a line may break.
    links = " ".join(
        f'<a href="#{escape(one.key)}">{escape(one.title)}</a>' for one in sections[1:]
    )
    nav = f'<nav aria-label="Parts of this page">{links}</nav>' if links else ""
    first = escape(sections[0].key) if sections else ""
    body = "".join(map(_section, sections))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(style, script)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)} - Parnas</title><style>{style}</style></head>\n"
        f'<body><a class="skip" href="#{first}">Skip to the answer</a>'
        f"<header><h1>{escape(title)} <small>Parnas report</small></h1>{nav}</header>\n"
        f"<main>\n{body}</main>{f'<script>{script}</script>' if script else ''}</body></html>\n"
    )


def _policy(style: str, script: str) -> str:
    """What a browser may do here: nothing but this style, this script and pictures in the page.

    Whatever the files of a run hold, nothing is loaded from anywhere.
    """
    allowed = {"style-src": style, "script-src": script}
    hashes = "".join(f"; {rule} '{_hash(text)}'" for rule, text in allowed.items() if text)
    return f"default-src 'none'; img-src data:{hashes}; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8", "replace")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"


def _section(section: Section) -> str:
    # The key is in every answer's address; tabindex lets a skip link move the keyboard there.
    title = f"<h2>{escape(section.title)}</h2>"
    shape = f' class="{escape(section.shape)}"' if section.shape else ""
    return (
        f'<section id="{escape(section.key)}"{shape} tabindex="-1">'
        f"{title}{section.body}</section>\n"
    )


def subtitle(text: str) -> str:
    """A heading inside a section."""
    return f"<h3>{escape(text)}</h3>"


def paragraph(text: str, kind: str = "") -> str:
    """Running text."""
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"


def link(key: str, text: str) -> str:
    """A line that leads to a section of this page."""
    return f'<p class="note"><a href="#{escape(key)}">{escape(text)}</a></p>'


def note(text: str, kind: str = "note") -> str:
    """Small print; lines stay lines."""
    return f'<p class="{kind}">{"<br>".join(escape(line) for line in text.splitlines())}</p>'


def verdict(text: str) -> str:
    """What the comparison found."""
    return note(text, kind="verdict")


def caveats(lines: Sequence[str]) -> str:
    """A box of what a reader of the figures above must be told; empty without any."""
    if not lines:
        return ""
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<div class="caveats" role="note"><p>Read with care</p><ul>{items}</ul></div>'


def facts(values: Mapping[str, str]) -> str:
    """Short names and values in columns."""
    cells = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
        for name, value in values.items()
    )
    return f"<dl>{cells}</dl>" if cells else ""


def collapsible(title: str, text: str) -> str:
    """A file's text, folded away."""
    return f"<details><summary>{escape(title)}</summary>{_text(text, title)}</details>"


def commands(lines: Sequence[str], says: str = "commands") -> str:
    """Commands to copy."""
    return _text("\n".join(lines), says) if lines else ""


def _text(text: str, says: str) -> str:
    # Reached by the keyboard, since it may be wider than the page.
    return f'<pre tabindex="0" role="region" aria-label="{escape(says)}">{escape(text)}</pre>'


def image(content: bytes, caption: str, alt: str, *, kind: str = "png") -> str:
    """A picture inside the page; `alt` says what is seen to those who do not see it."""
    data = base64.b64encode(content).decode("ascii")
    return (
        f'<figure><img src="data:image/{kind};base64,{data}" alt="{escape(alt)}">'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def json_block(content: Any) -> str:
    """Data for the page's script, which no text inside can end."""
    text = json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return f'<script type="application/json">{text}</script>'


def table(
    head: Sequence[tuple[str, str]],
    rows: Sequence[tuple[str, Sequence[str]]],
    *,
    left: int,
    says: str,
) -> str:
    """A table; the first `left` columns hold text, the others numbers.

    `head` has title and unit of each column, `rows` the class and the cells of each row, of which
    the first names the row. `says` is what the table is about.
    """

    def side(index: int) -> str:
        return ' class="text"' if index < left else ""

    titles = "".join(
        f'<th scope="col"{side(i)}>{escape(title)}<small>{escape(unit)}</small></th>'
        for i, (title, unit) in enumerate(head)
    )
    body = "".join(
        f'<tr class="{escape(name)}"><th scope="row" class="text">{escape(cells[0])}</th>'
        + "".join(f"<td{side(i)}>{escape(cell)}</td>" for i, cell in enumerate(cells) if i)
        + "</tr>"
        for name, cells in rows
    )
    return scrolling(f"<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>", says)


def scrolling(body: str, says: str) -> str:
    """What scrolls alone where a screen is narrower than it; `says` is what it is about."""
    region = f'tabindex="0" role="region" aria-label="{escape(says)}"'
    return f'<div class="scroll" {region}>{body}</div>'
