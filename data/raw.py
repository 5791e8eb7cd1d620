"""Text that gives its bytes back, also where they are no UTF-8."""

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
        ValueError: it is empty, or a byte is no UTF-8.
    """
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{source}: is not UTF-8, byte {error.start} is 0x{raw[error.start]:02x} "
            f"({error.reason}); convert it, for example with `iconv -f latin1 -t utf-8`"
        ) from error
    if not text:
        raise ValueError(f"{source}: is empty; give a file with text")
    return text


def to_bytes(text: str) -> bytes:
    """The bytes that `to_text` was given."""
    return text.encode(errors="surrogateescape")
