"""A line on the screen at once: on standard output, or on standard error beside an answer."""

import sys

from utils.files import named


def announce(text: str) -> None:
    """One line on standard output, now: what follows takes long, or is another part.

    It is written whole, where several threads say something; an error names standard output.
    """
    with named("standard output"):
        # In one write: `print` writes the end of a line apart.
        print(f"{text}\n", end="", flush=True)


def say(text: str) -> None:
    """One line of progress on standard error, now, beside what the command answers."""
    print(text, file=sys.stderr, flush=True)
