"""What a SentencePiece model says about itself, read from its protocol buffer.

The Python package reads that only with `protobuf` beside it, which Parnas does without. Numbers
of fields are those of sentencepiece_model.proto.
"""

import hashlib
import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

import sentencepiece

# Seen models have up to 20 MB.
LARGEST_MODEL = 64_000_000
# One field: normalizer_spec {add_dummy_prefix: false}. Of two such fields the later one wins.
_NO_DUMMY_PREFIX = b"\x1a\x02\x18\x00"
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5


class PieceType(IntEnum):
    """What a piece is for."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True)
class Piece:
    """One entry of the vocabulary; spaces are written as U+2581."""

    text: str
    score: float
    type: int


@dataclass(frozen=True)
class ModelFile:
    """All of a model that decides how text becomes ids.

    Attributes:
        pieces: in the order of their source ids.
        algorithm: 1 unigram, 2 BPE, 3 words, 4 characters.
        byte_fallback: whether text that no piece covers becomes bytes.
        space_after: whether spaces belong to the word before them.
        rules: the name of the normalisation, which the model gives itself.
        charsmap: its table; empty where every character stays.
        dummy_prefix: whether a space is put before every text.
        extra_spaces_removed: whether runs of spaces and those at both ends are cut.
        spaces_escaped: whether a space becomes U+2581.
    """

    pieces: tuple[Piece, ...]
    algorithm: int
    byte_fallback: bool
    space_after: bool
    rules: str
    charsmap: bytes
    dummy_prefix: bool
    extra_spaces_removed: bool
    spaces_escaped: bool

    @property
    def identity(self) -> str:
        """Hash of everything here but the name of the normalisation."""
        spec = [
            self.algorithm,
            self.byte_fallback,
            self.space_after,
            hashlib.sha256(self.charsmap).hexdigest(),
            self.dummy_prefix,
            self.extra_spaces_removed,
            self.spaces_escaped,
            [(piece.text, piece.score, piece.type) for piece in self.pieces],
        ]
        return hashlib.sha256(json.dumps(spec).encode()).hexdigest()


def read_model(model: bytes) -> tuple[sentencepiece.SentencePieceProcessor, ModelFile]:
    """Load a serialised model, and read what it says about itself.

    Raises:
        ValueError: it is none, or not one that text can be encoded with.
    """
    if len(model) > LARGEST_MODEL:
        raise ValueError(f"is larger than {LARGEST_MODEL} bytes; no SentencePiece model is")
    try:
        parsed = _parse(model)
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"is no SentencePiece model ({len(model)} bytes)") from error
    unknown = [i for i, piece in enumerate(parsed.pieces) if piece.type == PieceType.UNKNOWN]
    if len(parsed.pieces) != processor.vocab_size() or unknown != [processor.unk_id()]:
        raise ValueError(
            f"is no sound SentencePiece model: {len(parsed.pieces)} pieces, "
            f"{len(unknown)} of them for unknown text"
        )
    return processor, parsed


def without_dummy_prefix(model: bytes) -> bytes:
    """The model with no space put before texts."""
    return model + _NO_DUMMY_PREFIX


def _parse(model: bytes) -> ModelFile:
    # Parts of a message that come twice count as if they were written one after the other.
    parts: dict[int, list[bytes]] = {1: [], 2: [], 3: []}
    for number, value in _fields(model):
        if isinstance(value, bytes) and number in parts:
            parts[number].append(value)
    pieces = [_piece(dict(_fields(value))) for value in parts[1]]
    training, rules = (dict(_fields(b"".join(parts[number]))) for number in (2, 3))
    return ModelFile(
        pieces=tuple(pieces),
        algorithm=_number(training, 3, 1),
        byte_fallback=bool(_number(training, 35, 0)),
        space_after=bool(_number(training, 24, 0)),
        rules=_bytes(rules, 1).decode(errors="replace"),
        charsmap=_bytes(rules, 2),
        dummy_prefix=bool(_number(rules, 3, 1)),
        extra_spaces_removed=bool(_number(rules, 4, 1)),
        spaces_escaped=bool(_number(rules, 5, 1)),
    )


def _piece(fields: dict[int, int | bytes]) -> Piece:
    score = _bytes(fields, 2) or bytes(4)
    return Piece(
        text=_bytes(fields, 1).decode(),
        score=float(struct.unpack("<f", score)[0]) if len(score) == 4 else 0.0,
        type=_number(fields, 3, PieceType.NORMAL),
    )


def _number(fields: dict[int, int | bytes], number: int, default: int) -> int:
    value = fields.get(number, default)
    if isinstance(value, bytes):
        raise ValueError(f"field {number} is no number")
    return value


def _bytes(fields: dict[int, int | bytes], number: int) -> bytes:
    value = fields.get(number, b"")
    if not isinstance(value, bytes):
        raise ValueError(f"field {number} is no text")
    return value


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The numbered fields of a message: numbers, and bytes for all the rest.

    Raises:
        ValueError: it is no message.
    """
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, at = _varint(message, at)
            yield number, value
            continue
        if wire == _BYTES:
            size, at = _varint(message, at)
        elif wire in (_EIGHT, _FOUR):
            size = 8 if wire == _EIGHT else 4
        else:
            raise ValueError(f"wire type {wire}")
        if size > len(message) - at:
            raise ValueError("a field ends after the message")
        yield number, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            break
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
    raise ValueError("a number does not end")
