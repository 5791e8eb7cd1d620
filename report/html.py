"""Pieces of the page. Every text that comes from a file passes through `escape`."""

import base64
from collections.abc import Mapping, Sequence
from html import escape

_STYLE = """
:root { color-scheme: light dark; --ink: #1d1d1f; --soft: #62626a; --line: #dcdce2;
  --page: #f6f6f8; --card: #ffffff; --mark: #fff4e8; --link: #0b62a8; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e8ec; --soft: #a2a2ac; --line: #3a3a42;
  --page: #17171a; --card: #212126; --mark: #3a2c1e; --link: #7cbcf0; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 3rem; max-width: 72rem; background: var(--page);
  color: var(--ink); font: 15px/1.5 system-ui, "Segoe UI", "Helvetica Neue", sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 1rem; } h1 small { color: var(--soft); font-weight: normal; }
h2 { font-size: 1.1rem; margin: 0 0 .75rem; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: 1.1rem 1.25rem; margin: 0 0 1rem; }
p { margin: 0 0 .6rem; } .note { color: var(--soft); font-size: .88rem; }
a { color: var(--link); }
.verdict { background: var(--mark); border-left: 4px solid #d55e00; padding: .5rem .8rem;
  border-radius: 4px; font-weight: 600; }
.caveats { background: var(--mark); border: 1px solid #d55e00; border-left-width: 4px;
  border-radius: 4px; padding: .5rem .8rem; margin: 0 0 .8rem; overflow-wrap: anywhere; }
.caveats p { margin: 0 0 .2rem; font-weight: 600; }
.caveats ul { margin: 0; padding-left: 1.1rem; } .caveats li { margin: .15rem 0; }
dl { display: flex; flex-wrap: wrap; gap: .5rem 1.8rem; margin: 0 0 .8rem; }
dt { color: var(--soft); font-size: .8rem; } dd { margin: 0; overflow-wrap: anywhere; }
details { margin: .3rem 0; } summary { cursor: pointer; color: var(--soft); }
pre, code { font: 13px/1.45 ui-monospace, Menlo, Consolas, monospace; }
pre { overflow: auto; max-height: 28rem; padding: .7rem .9rem; margin: .4rem 0 .6rem;
  border: 1px solid var(--line); border-radius: 6px; background: var(--page); }
figure { margin: 0 0 1rem; }
figure img { display: block; max-width: 100%; height: auto; background: #fff; border-radius: 6px; }
figcaption { color: var(--soft); font-size: .88rem; margin-top: .25rem; }
.scroll { overflow-x: auto; margin: 0 0 .7rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .6rem; border-bottom: 1px solid var(--line); text-align: right;
  white-space: nowrap; }
th { font-weight: 600; vertical-align: bottom; }
th small { display: block; color: var(--soft); font-weight: normal; min-height: 1.2em; }
.text { text-align: left; } tr.searched td { background: var(--mark); font-weight: 600; }
.boxes { display: flex; flex-wrap: wrap; gap: 4px; margin: 0 0 .7rem; }
.box { display: flex; flex-direction: column; align-items: center; flex: 0 0 5.6rem;
  overflow: hidden; padding: .25rem .2rem .35rem; border-radius: 6px; line-height: 1.3; }
.box span { max-width: 100%; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.box .slot { font-size: .72rem; } .box .pi { font-size: .8rem; }
.box .kind { font-weight: 600; font-size: .88rem; }
.many .box { flex-basis: calc((100% - 60px) / 16); min-width: 3.9rem; }
.many .box .kind { font-size: .74rem; } .many .box .pi { font-size: .74rem; }
.small .box { padding: .08rem .15rem; border-radius: 4px; }
.small .box .kind { font-weight: 500; font-size: .74rem; } .small .box .slot { font-size: .62rem; }
.other { display: grid; grid-template-columns: 8rem 1fr; gap: .5rem; align-items: center; }
.other > span { overflow-wrap: anywhere; color: var(--soft); } .other .boxes { margin: 0 0 .4rem; }
.files { margin: .6rem 0 0; padding-left: 1.2rem; columns: 2 22rem; font-size: .9rem;
  color: var(--soft); }
@media (max-width: 40rem) { .other { grid-template-columns: 1fr; gap: 0; } }
"""

# A browser that reads this loads nothing from anywhere, whatever the files of the run hold.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def page(title: str, body: str) -> str:
    """The whole document."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)} - Parnas</title><style>{_STYLE}</style></head>"
        f"<body><h1>{escape(title)} <small>Parnas report</small></h1>\n{body}</body></html>\n"
    )


def section(title: str, body: str) -> str:
    """One card of the page."""
    return f"<section><h2>{escape(title)}</h2>{body}</section>\n"


def paragraph(text: str) -> str:
    """Running text."""
    return f"<p>{escape(text)}</p>"


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
    return f"<details><summary>{escape(title)}</summary><pre>{escape(text)}</pre></details>"


def commands(lines: Sequence[str]) -> str:
    """Commands to copy."""
    return f"<pre>{escape(chr(10).join(lines))}</pre>" if lines else ""


def image(content: bytes, caption: str, *, kind: str = "png") -> str:
    """A picture inside the page."""
    data = base64.b64encode(content).decode("ascii")
    text = escape(caption)
    return (
        f'<figure><img src="data:image/{kind};base64,{data}" alt="{text}">'
        f"<figcaption>{text}</figcaption></figure>"
    )


def table(
    head: Sequence[tuple[str, str]], rows: Sequence[tuple[str, Sequence[str]]], *, left: int
) -> str:
    """A table; the first `left` columns hold text, the others numbers.

    `head` has title and unit of each column, `rows` the class and the cells of each row.
    """

    def side(index: int) -> str:
        return ' class="text"' if index < left else ""

    titles = "".join(
        f"<th{side(i)}>{escape(title)}<small>{escape(unit)}</small></th>"
        for i, (title, unit) in enumerate(head)
    )
    body = "".join(
        f'<tr class="{escape(name)}">'
        + "".join(f"<td{side(i)}>{escape(cell)}</td>" for i, cell in enumerate(cells))
        + "</tr>"
        for name, cells in rows
    )
    return (
        f'<div class="scroll"><table><thead><tr>{titles}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )
