"""Pieces of text by id: a SentencePiece model's, read as they lie in its file, exact or lossy.

A source id is what the underlying scheme calls a piece, an id is its rank by training frequency.
SentencePiece's Python package reads a model's own settings only with `protobuf` beside it, which
Parnas does without: numbers of fields are those of sentencepiece_model.proto. Encoding is exact for
every model with byte fallback that leaves characters and spaces alone.

V vocabulary
"""

import hashlib
import json
import os
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import chain
from typing import Any

import numpy as np
import sentencepiece
from numpy.typing import ArrayLike, NDArray

from data.text import STRAY_BYTES, to_bytes

IdArray = NDArray[np.int64]
# Seen models have up to 20 MB.
LARGEST_MODEL = 64_000_000
# One field: normalizer_spec {add_dummy_prefix: false}. Of two such fields the later one wins.
_NO_DUMMY_PREFIX = b"\x1a\x02\x18\x00"
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
# SentencePiece writes a space as U+2581 and would read U+2581 back as a space, so that character
# never reaches it, and neither do bytes that are no UTF-8; both become byte pieces. Newlines are
# kept apart too, which makes encoding line by line exact.
SPACE_MARK = "\u2581"
_SEPARATORS = re.compile(f"([\n{SPACE_MARK}{STRAY_BYTES}])")
# Longer lines are cut: SentencePiece drops training lines above a limit without a word,
# and needs much memory for very long ones.
LONGEST = 16_384
LOWER_CASED = "text is lower-cased"


def rank_by_count(counts_V: ArrayLike) -> IdArray:
    """The rank of each id, most frequent first, ties in the order of the ids."""
    order_V = np.argsort(-np.asarray(counts_V, dtype=np.int64), kind="stable")
    rank_V = np.empty_like(order_V)
    rank_V[order_V] = np.arange(len(order_V))
    return rank_V


class PieceTable:
    """Bytes of every id, and the way from source ids to ids.

    Attributes:
        rank_V: the id of each source id.
        bytes_V: the raw bytes of each id; nothing for `<doc>`.
        byte_length_V: their lengths.
        doc_id: the id of `<doc>`.
    """

    def __init__(
        self, source_bytes: Sequence[bytes], source_doc: int, rank_V: ArrayLike | None
    ) -> None:
        size = len(source_bytes)
        self.rank_V: IdArray = np.asarray(
            np.arange(size) if rank_V is None else rank_V, dtype=np.int64
        )
        if not np.array_equal(np.sort(self.rank_V), np.arange(size)):
            raise ValueError(
                f"ranks are not the numbers 0 to {size - 1} in some order "
                f"(found {len(self.rank_V)} numbers for {size} pieces)"
            )
        self.source_V: IdArray = np.argsort(self.rank_V)
        self.bytes_V = [source_bytes[source] for source in self.source_V]
        self.doc_id = int(self.rank_V[source_doc])
        assert not self.bytes_V[self.doc_id]
        self.byte_length_V: IdArray = np.array([len(b) for b in self.bytes_V], dtype=np.int64)
        self.byte_length_V.flags.writeable = False

    @property
    def size(self) -> int:
        """Number of ids, `<doc>` among them."""
        return len(self.bytes_V)

    def to_bytes(self, ids: ArrayLike) -> bytes:
        """The raw bytes that a run of ids stands for; `<doc>` adds none."""
        flat = np.asarray(ids, dtype=np.int64).ravel()
        if len(flat) and not (flat.min() >= 0 and flat.max() < self.size):
            raise ValueError(
                f"ids from {flat.min()} to {flat.max()}, but the vocabulary has 0 to "
                f"{self.size - 1}; use the tokenizer that made the ids"
            )
        return b"".join([self.bytes_V[i] for i in flat.tolist()])

    def to_text(self, ids: ArrayLike) -> str:
        """The text of a run of ids; bytes that are no UTF-8 (a cut character) become U+FFFD."""
        return self.to_bytes(ids).decode(errors="replace")

    def digest(self, *identity: Any) -> str:
        """Hash of the ranks and of whatever else decides how text becomes ids."""
        content = json.dumps([*identity, self.rank_V.tolist()])
        return hashlib.sha256(content.encode()).hexdigest()


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


class ExactPieces:
    """The pieces of a model that loses nothing. Attributes as in `Scheme`.

    <unk> is an id that byte fallback leaves without use: it becomes `<doc>`.
    """

    source_unknown: int | None = None

    def __init__(
        self,
        kind: str,
        model: bytes,
        processor: sentencepiece.SentencePieceProcessor,
        file: ModelFile,
        *,
        lower_case: bool = False,
    ) -> None:
        """Take a model that was read.

        Args:
            kind: its name in the registry.
            model: what is saved.
            processor: what encodes; it puts no space before texts.
            file: what the model says about itself.
            lower_case: whether text is lower-cased first.

        Raises:
            ValueError: the model has no byte fallback, or changes characters or spaces.
        """
        if lost := losses_of(file):
            raise ValueError(f"would lose text: {'; '.join(lost)}")
        self.kind = kind
        self.model: bytes | None = model
        self.lower_case = lower_case
        self.losses: tuple[str, ...] = (LOWER_CASED,) if lower_case else ()
        self.identity: Sequence[str] = (file.identity,)
        self.source_doc = processor.unk_id()
        self.source_bytes: Sequence[bytes] = raw_bytes(file)
        self._processor = processor
        spelt = (PieceType.NORMAL, PieceType.USER_DEFINED, PieceType.BYTE)
        sources = {p.text: source for source, p in enumerate(file.pieces) if p.type in spelt}
        self._byte_pieces = [sources[f"<0x{byte:02X}>"] for byte in range(256)]
        self._newline = sources.get("\n", self._byte_pieces[ord("\n")])
        # A model trained on text without spaces spells the mark of a space in three bytes.
        mark = [self._byte_pieces[byte] for byte in SPACE_MARK.encode()]
        self._spelt_mark = None if SPACE_MARK in sources else mark

    def encode(self, text: str) -> IdArray:
        """Source ids of a text."""
        parts = [part for part in _SEPARATORS.split(text) if part]
        plain = list(chain.from_iterable(cut(part) for part in parts if not _separates(part)))
        encoded = iter(self._processor.encode(plain, num_threads=threads()))
        source: list[list[int]] = []
        for part in parts:
            if part == "\n":
                source.append([self._newline])
            elif _separates(part):
                source.append([self._byte_pieces[byte] for byte in to_bytes(part)])
            else:
                source.extend(self._spaced(next(encoded)) for _ in cut(part))
        return np.fromiter(chain.from_iterable(source), dtype=np.int64)

    def _spaced(self, source: list[int]) -> list[int]:
        """The source ids with a space where its mark was spelt in bytes."""
        if self._spelt_mark is None:
            return source
        spaced: list[int] = []
        for each in source:
            spaced.append(each)
            if spaced[-3:] == self._spelt_mark:
                spaced[-3:] = [self._byte_pieces[ord(" ")]]
        return spaced


def losses_of(file: ModelFile) -> tuple[str, ...]:
    """What text loses in a model, whether or not a space is put before it; empty where nothing."""
    lost = []
    if file.charsmap:
        lost.append("characters are normalised")
    if file.extra_spaces_removed:
        lost.append("extra spaces are removed")
    if not file.spaces_escaped:
        lost.append("spaces are not marked")
    if not file.byte_fallback:
        lost.append("what no piece covers becomes <unk>")
    return tuple(lost)


def raw_bytes(file: ModelFile) -> list[bytes]:
    """What each piece stands for; control pieces stand for nothing."""
    return [_raw(piece.text, piece.type) for piece in file.pieces]


def _raw(text: str, kind: int) -> bytes:
    if kind in (PieceType.UNKNOWN, PieceType.CONTROL):
        return b""
    if kind == PieceType.BYTE:
        return bytes([int(text[3:5], 16)])
    return text.replace(SPACE_MARK, " ").encode()


def cut(part: str) -> Iterator[str]:
    """A stretch of text in parts that SentencePiece takes."""
    return (part[start : start + LONGEST] for start in range(0, len(part), LONGEST))


def plain_parts(text: str) -> Iterator[str]:
    """The stretches of a text that SentencePiece gets to see."""
    for part in _SEPARATORS.split(text):
        if part and not _separates(part):
            yield from cut(part)


def threads() -> int:
    """How many threads encode; the ids do not depend on it."""
    return min(os.cpu_count() or 1, 8)


def _separates(part: str) -> bool:
    return _SEPARATORS.fullmatch(part) is not None
