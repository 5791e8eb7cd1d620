"""SentencePiece without loss: line by line, and in bytes whatever it would change.

It holds for every model with byte fallback that leaves characters and spaces alone.
"""

import os
import re
from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
import sentencepiece

from data.raw import STRAY_BYTES, to_bytes
from data.tokenizers.model_file import ModelFile, PieceType
from data.tokenizers.pieces import IdArray

# SentencePiece writes a space as U+2581 and would read U+2581 back as a space, so that character
# never reaches it, and neither do bytes that are no UTF-8; both become byte pieces. Newlines are
# kept apart too, which makes encoding line by line exact.
SPACE_MARK = "\u2581"
_SEPARATORS = re.compile(f"([\n{SPACE_MARK}{STRAY_BYTES}])")
# Longer lines are cut: SentencePiece drops training lines above a limit without a word,
# and needs much memory for very long ones.
LONGEST = 16_384
LOWER_CASED = "text is lower-cased"


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
