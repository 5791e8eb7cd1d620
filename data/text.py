"""Text from bytes and back, what is no UTF-8, and how many words a text has."""

from collections.abc import Iterator

# Byte order marks and blanks of no width, which no strip takes for white space.
_UNSEEN = "\ufeff\u200b"
# Each such byte becomes one lone surrogate, U+DC80 to U+DCFF (Python's "surrogateescape").
STRAY_BYTES = "\udc80-\udcff"


def why_no_utf8(raw: bytes) -> str | None:
    """Why the content of a file is no UTF-8 text; None where it is."""
    if 10 * raw.count(0) > len(raw):
        return (
            "is not UTF-8, more than a tenth of it are zeros, as in UTF-16; convert it, for "
            "example with `iconv -f utf-16le -t utf-8`"
        )
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        return (
            f"is not UTF-8, byte {error.start} is 0x{raw[error.start]:02x} ({error.reason}); "
            "convert a text from the encoding it has, for example with `iconv -f latin1 -t utf-8`"
        )
    return None


def to_text(raw: bytes) -> str:
    """Decode UTF-8; a byte that is none becomes a lone surrogate."""
    return raw.decode(errors="surrogateescape")


def to_utf8_text(raw: bytes, source: str) -> str:
    """Decode a file, which messages call `source`, without its byte order mark.

    ValueError: it is no text.
    """
    if not raw:
        raise ValueError(f"{source}: is empty; give a file with text")
    if (why := why_no_utf8(raw)) is not None:
        raise ValueError(f"{source}: {why}")
    return raw.decode("utf-8-sig")


def bare_lines(text: str) -> Iterator[str]:
    """Lines without white space around them, empty ones left out.

    By these texts are compared: line ends, blanks behind a line and a byte order mark are lost and
    won by editors and converters, and no other text.
    """
    return filter(None, (line.strip().strip(_UNSEEN).strip() for line in text.splitlines()))


def to_bytes(text: str) -> bytes:
    """The bytes that `to_text` was given."""
    return text.encode(errors="surrogateescape")


def count_words(text: str) -> int:
    """Words between white space, and one end of line for each line as papers count WikiText."""
    return len(text.split()) + text.count("\n")
