"""Text for people: cut, masked, made visible, and times on a clock."""

import re
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

# Up to the last @: a password with an unescaped one is taken as a whole. An address that lacks its
# kind is known by its key.
_AFTER_USER = re.compile(r"(://[^:/@]*|storage=[^:/@]*(?!://)):.*@", re.DOTALL)
_OPTION = re.compile(r"([?&][a-z]*pass[a-z]*=)[^&]*", re.IGNORECASE)

# What is said of a layout that sees the current token alone, on screen and in the report.
NO_CONTEXT = "no block of this layout reads earlier tokens"


def plural(count: int, word: str) -> str:
    """E.g. `1 layout`, `2 layouts`."""
    return f"{count} {word}{'s' * (count != 1)}"


def kind_words(kind: str) -> str:
    """The name of a kind in prose."""
    return kind.replace("dense", "feed-forward").replace("_", " ")


def layout_title(kinds: Sequence[str], name: str) -> str:
    """What a layout of these kinds is, in words; its `name` says whether it is a random one."""
    words = [kind_words(kind) for kind in kinds if kind != "identity"]
    found, runs = Counter(words), [word for word, _ in groupby(words)]
    counts = ", ".join(f"{count} {word}" for word, count in sorted(found.items()))
    counts = counts if len(found) < 4 else f"{len(words)} blocks of {len(found)} kinds"
    if name.startswith(("random", "permuted")):
        return f"{name.partition('-')[0]} ({counts})"
    if {*words[::2]} == {"attention"} and {*words[1::2]} == {"feed-forward"}:
        if name == f"interleaved-{len(words)}":
            return f"interleaved cut to {len(words)} blocks"
        return f"interleaved ({counts})"
    if len(runs) == 2:
        return f"{runs[0]} first ({counts})"
    return f"{counts}, mixed" if runs[1:] else counts or "no block adds anything"


def given_words(result: Mapping[str, Any]) -> list[str]:
    """What a training took from trained models, by its result: a teacher, the weights at first."""
    lines = list[str]()
    if teacher := result.get("teacher"):
        weight, heat = teacher["weight"], teacher["temperature"]
        lines.append(
            f"learned from {teacher['name']} (weights {teacher['digest'][:12]}): loss {weight:g} KL"
            f"{f' at temperature {heat:g}' if heat != 1 else ''} + {1 - weight:g} nats; its pass "
            f"takes {compact(teacher['flops_per_token'])} FLOPs/token"
        )
    if start := result.get("start"):
        lines.append(f"started from {start['name']} (weights {start['digest'][:12]})")
    return lines


def masked(text: str) -> str:
    """A text as it may be shown or recorded: the password of an address in it is ***.

    An address is such as `postgresql://user:password@host/database?sslpassword=password`.
    """
    return _OPTION.sub(r"\1***", _AFTER_USER.sub(r"\1:***@", text))


def without_passwords(text: str) -> str:
    """A text with the passwords of addresses left out."""
    bare = _OPTION.sub("", _AFTER_USER.sub(r"\1@", text))
    return bare if "?" in bare else bare.replace("&", "?", 1)


def visible(text: str) -> str:
    """A text with escapes for what a terminal would not print, or would obey; line ends too."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shorten(text: str, most: int) -> str:
    """A text of at most `most` characters, with dots where something is missing."""
    return text if len(text) <= most else f"{text[: max(most - 3, 0)]}..."


def wrapped(rows: Sequence[Sequence[str]], column: int, width: int) -> list[list[str]]:
    """The rows of a table; a longer cell of a column goes on in rows of its own.

    It is cut between words, and a word that is longer anywhere.
    """
    lines = list[list[str]]()
    for row in rows:
        first, *more = textwrap.wrap(row[column], width) or [""]
        lines.append([*row[:column], first, *row[column + 1 :]])
        lines += [["" if at != column else part for at in range(len(row))] for part in more]
    return lines


def aligned(rows: Sequence[Sequence[str]], left: int = 0) -> list[str]:
    """The lines of a table; the first `left` columns begin, all others end below each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if index < left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def duration(seconds: float) -> str:
    """1:02:03 or 2:03."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def compact(value: float) -> str:
    """A number in three digits and a unit letter: 1234567 is 1.23M, 1.5 stays as it is."""
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= 0.9995 * size:
            scaled = value / size
            decimals = 2 if abs(scaled) < 9.995 else 1 if abs(scaled) < 99.95 else 0
            return f"{scaled:.{decimals}f}{unit}"
    return f"{value:.3g}"
