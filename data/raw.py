"""Text that gives its bytes back, also where they are no UTF-8."""

# Each such byte becomes one lone surrogate, U+DC80 to U+DCFF (Python's "surrogateescape").
STRAY_BYTES = "\udc80-\udcff"


def to_text(raw: bytes) -> str:
    """Decode UTF-8; a byte that is none becomes a lone surrogate."""
    return raw.decode(errors="surrogateescape")


def to_bytes(text: str) -> bytes:
    """The bytes that `to_text` was given."""
    return text.encode(errors="surrogateescape")
