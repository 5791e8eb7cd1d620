"""The page's sections about layouts: the chosen one, its gap, and all others as stacks."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from report import html
from report.architectures import Layout, as_number
from report.contenders import Contender
from report.stack import Palette, stack, stack_columns

_NETS = {
    "soft": "pi's mixture of all candidates",
    "sampled": "layouts drawn from pi",
    "one_hot": "this layout, with the SuperNet's weights",
}


def derived_section(layout: Layout, palette: Palette) -> html.Section:
    """The chosen layout with the pi of each slot, what speaks against it, and its gap."""
    parts = [html.paragraph(layout.summary)]
    drawn = stack(layout.labels, palette, layout.sure)
    parts.append(f'<div class="layouts"><div class="wide">{drawn}</div></div>')
    words = "The first slot is lowest."
    if layout.sure:
        words = "Each block has the pi that it was chosen with. The first slot is lowest."
    parts.append(html.note(words))
    parts.append(html.caveats(layout.caveats))
    parts.append(_gap(layout.gap))
    return html.Section("derived", "Derived layout", "".join(parts))


def _gap(gap: Mapping[str, Any]) -> str:
    """What one candidate per slot costs beside the mixture, on validation text."""
    rows = []
    for key, words in _NETS.items():
        of = gap.get(key)
        nats = as_number(of.get("nats_per_token")) if isinstance(of, dict) else None
        error = as_number(of.get("standard_error")) if isinstance(of, dict) else None
        if nats is not None:
            rows.append(("", [words, f"{nats:.4f}", "-" if error is None else f"{error:.4f}"]))
    if not rows:
        return ""
    head = [("net", ""), ("nats", "per validation token"), ("standard error", "over the text")]
    table = html.table(head, rows, left=1, says="the discretisation gap")
    ratio, error = as_number(gap.get("ratio")), as_number(gap.get("ratio_error"))
    note = "" if ratio is None else html.note(
        f"Perplexity of the layout over that of the mixture: {ratio:.4f}"
        + ("." if error is None else f" (standard error {error:.4f}).")
    )  # fmt: skip
    return html.subtitle("Discretisation gap") + table + note


def layouts_section(contenders: Sequence[Contender], palette: Palette) -> html.Section | None:
    """Every layout of the run as a stack; None where there is one at most."""
    if len(contenders) < 2:
        return None
    wide = ' class="wide"' if any(stack_columns(len(one.labels)) > 1 for one in contenders) else ""
    drawn = "".join(
        f"<div{wide}>{stack(one.labels, palette, numbered=False)}<p>{escape(one.name)}"
        + ("" if one.nats is None else f"<br>{one.nats:.4f} nats")
        + "</p></div>"
        for one in contenders
    )
    return html.Section("layouts", "All layouts", f'<div class="layouts">{drawn}</div>')
