"""Text from bytes and back, what an encoding is that is no UTF-8, and how many words a text has."""

import codecs
from collections.abc import Iterator

_SAMPLE_BYTES = 1 << 16
_FILES = {
    b"\x1f\x8b": "gzip-compressed; unpack it first",
    b"BZh": "bzip2-compressed; unpack it first",
    b"\xfd7zXZ\0": "xz-compressed; unpack it first",
    b"\x28\xb5\x2f\xfd": "zstd-compressed; unpack it first",
    b"PK\x03\x04": "a ZIP archive or an office document; unpack it, or export its text",
    b"%PDF": "a PDF; export its text, for example with `pdftotext`",
}
# The longer marks first: that of UTF-32 begins with that of UTF-16.
_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
# Which bytes of four are NUL in text of characters below U+0100.
_NUL_PLACES = {
    "utf-32le": (1, 2, 3),
    "utf-32be": (0, 1, 2),
    "utf-16le": (1, 3),
    "utf-16be": (0, 2),
}
# Byte order marks and blanks of no width, which no strip takes for white space.
_UNSEEN = "\ufeff\u200b"
_LEAST_NUL_SHARE = 0.7
_MOST_CONTROL_SHARE = 0.01
_WHITE_SPACE = "\t\n\v\f\r"
# Each such byte becomes one lone surrogate, U+DC80 to U+DCFF (Python's "surrogateescape").
STRAY_BYTES = "\udc80-\udcff"


def why_no_utf8(raw: bytes) -> str | None:
    """What the content of a file is instead of UTF-8 text, with the remedy; None where it is that.

    A few NULs are characters like others; UTF-16 without a byte order mark is known by its many.
    """
    if name := _wide_encoding(raw):
        return f"is {name.upper()}, not UTF-8; convert it with `iconv -f {name} -t utf-8`"
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        byte = f"byte {error.start} is 0x{raw[error.start]:02x}"
        for mark, words in _FILES.items():
            if raw.startswith(mark):
                return f"is no text but {words}"
        if _control_share(raw[:_SAMPLE_BYTES].decode("latin-1")) > _MOST_CONTROL_SHARE:
            return f"is no text but a binary file ({byte}); give a file of UTF-8 text"
        return (
            f"is not UTF-8, {byte} ({error.reason}); convert it from the encoding it has, for "
            "example with `iconv -f latin1 -t utf-8`"
        )
    return None


def _wide_encoding(raw: bytes) -> str | None:
    """UTF-16 or UTF-32, by its byte order mark or by where its NULs stand; None for the others."""
    for mark, name in _BYTE_ORDER_MARKS.items():
        if raw.startswith(mark) and _is_text_in(name, raw):
            return name
    sample = raw[: min(_SAMPLE_BYTES, len(raw) // 4 * 4)]
    shares = [
        sample[place::4].count(0) / (len(sample) // 4) if sample else 0.0 for place in range(4)
    ]
    for name, places in _NUL_PLACES.items():
        others = set(range(4)) - set(places)
        nul = min(shares[place] for place in places) >= _LEAST_NUL_SHARE
        if nul and max(shares[place] for place in others) <= 1 - _LEAST_NUL_SHARE:
            return name if _is_text_in(name, raw) else None
    return None


def _is_text_in(encoding: str, raw: bytes) -> bool:
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError:
        return False
    return _control_share(text[:_SAMPLE_BYTES]) <= _MOST_CONTROL_SHARE


def _control_share(text: str) -> float:
    controls = sum(
        (letter < " " or letter == "\x7f") and letter not in _WHITE_SPACE for letter in text
    )
    return controls / max(1, len(text))


def to_text(raw: bytes) -> str:
    """Decode UTF-8; a byte that is none becomes a lone surrogate."""
    return raw.decode(errors="surrogateescape")


def to_utf8_text(raw: bytes, source: str) -> str:
    """Decode the content of a file, which messages call `source`.

    ValueError where it is empty or no UTF-8; the message says what it is instead, and the remedy.
    """
    if not raw:
        raise ValueError(f"{source}: is empty; give a file with text")
    if (why := why_no_utf8(raw)) is not None:
        raise ValueError(f"{source}: {why}")
    return raw.decode()


def bare_lines(text: str) -> Iterator[str]:
    """Lines without white space around them, empty ones left out.

    By these texts are compared: line ends, blanks behind a line and a byte order mark are lost and
    won by editors and converters, and no other text.
    """
    return filter(None, (line.strip().strip(_UNSEEN).strip() for line in text.splitlines()))


def to_bytes(text: str) -> bytes:
    """The bytes that `to_text` was given."""
    return text.encode(errors="surrogateescape")


def count_words(text: str, *, line_ends: bool = True) -> int:
    """Words between white space, and one end of line for each line as papers count WikiText.

    Without `line_ends` the words alone.
    """
    return len(text.split()) + (text.count("\n") if line_ends else 0)
