"""Names of files and folders that are made of what they hold."""

import hashlib

MOST_NAME = 60


def short_text(text: str) -> str:
    """The text; of a long one its beginning and its hash, so that a file may be called so."""
    if len(text) <= MOST_NAME:
        return text
    return f"{text[: MOST_NAME - 9]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def layout_name(layout: str) -> str:
    """A layout as part of a file name: letters without blanks, a long one with its hash."""
    words = layout.split()
    return short_text(("" if all(len(word) == 1 for word in words) else "-").join(words))
