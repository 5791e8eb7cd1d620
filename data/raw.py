"""Text that gives its bytes back, also where they are no UTF-8."""

from data.encodings import why_no_utf8

# Each such byte becomes one lone surrogate, U+DC80 to U+DCFF (Python's "surrogateescape").
STRAY_BYTES = "\udc80-\udcff"


def to_text(raw: bytes) -> str:
    """Decode UTF-8; a byte that is none becomes a lone surrogate."""
    return raw.decode(errors="surrogateescape")


def to_utf8_text(raw: bytes, source: str) -> str:
    """Decode UTF-8 that is not empty.

    Args:
        raw: the content of a file.
        source: its name, for messages.

    Raises:
        ValueError: it is empty or no UTF-8; the message says what it is instead, and the remedy.
    """
    if not raw:
        raise ValueError(f"{source}: is empty; give a file with text")
    if (why := why_no_utf8(raw)) is not None:
        raise ValueError(f"{source}: {why}")
    return raw.decode()


def to_bytes(text: str) -> bytes:
    """The bytes that `to_text` was given."""
    return text.encode(errors="surrogateescape")
