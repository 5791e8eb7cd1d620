"""The `bpe` tokenizer: SentencePiece byte-pair encoding that loses nothing of any text."""

import io
import os
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import numpy as np
import sentencepiece
from numpy.typing import ArrayLike

from data.pieces import IdArray, PieceTable, rank_by_count
from data.raw import STRAY_BYTES, to_bytes
from data.tokenizer_file import write_tokenizer_file

DEFAULT_VOCABULARY = 4096
MODEL_FILE = "tokenizer.model"

# SentencePiece writes a space as U+2581 and would read U+2581 back as a space, so that character
# never reaches it, and neither do bytes that are no UTF-8; both become byte pieces. Newlines are
# kept apart too, which makes encoding line by line exact.
_SPACE_MARK = "\u2581"
_SEPARATORS = re.compile(f"([\n{_SPACE_MARK}{STRAY_BYTES}])")
# Longer lines are cut: SentencePiece drops training lines above a limit without a word,
# and needs much memory for very long ones.
_LONGEST = 16_384
# <unk> is an id that byte fallback leaves without use: it becomes <doc>.
_SOURCE_DOC = 0


def train_bpe(texts: Iterable[str], vocabulary: int) -> bytes:
    """Train a SentencePiece model on training text.

    Args:
        texts: the documents of the training split.
        vocabulary: number of ids, with `<doc>`.

    Returns:
        The serialised model.

    Raises:
        ValueError: the text does not allow a vocabulary of this size.
    """
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=chain.from_iterable(_plain(text) for text in texts),
            model_writer=model,
            model_type="bpe",
            vocab_size=vocabulary,
            unk_id=_SOURCE_DOC,
            unk_piece="<doc>",
            bos_id=-1,
            eos_id=-1,
            pad_id=-1,
            user_defined_symbols=["\n"],
            byte_fallback=True,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            add_dummy_prefix=False,
            allow_whitespace_only_pieces=True,
            split_digits=True,
            character_coverage=0.9995,
            max_sentence_length=4 * _LONGEST + 4,
            num_threads=1,  # pieces are the same for any number, the model file is not
            minloglevel=2,
        )
    except RuntimeError as error:
        raise ValueError(_explain(str(error), vocabulary)) from error
    return model.getvalue()


class BpeTokenizer:
    """SentencePiece pieces, ids ranked by training frequency. Attributes as in `Tokenizer`."""

    kind = "bpe"

    def __init__(self, model: bytes, rank_V: ArrayLike | None = None) -> None:
        """Take a serialised model and the rank of each of its pieces (None: their own order).

        Raises:
            ValueError: the model cannot be read, lacks byte fallback, or does not fit the ranks.
        """
        self._model = model
        self._pieces = _load(model)
        spellings = [self._pieces.id_to_piece(i) for i in range(self._pieces.vocab_size())]
        self._table = PieceTable(
            [self._bytes_of(i, piece) for i, piece in enumerate(spellings)], _SOURCE_DOC, rank_V
        )
        self.vocabulary_size = self._table.size
        self.doc_id = self._table.doc_id
        self.byte_length_V = self._table.byte_length_V
        self.digest = self._table.digest(self.kind, spellings)
        self._newline = [self._pieces.piece_to_id("\n")]
        self._byte_pieces = [self._pieces.piece_to_id(f"<0x{byte:02X}>") for byte in range(256)]
        self._threads = min(os.cpu_count() or 1, 8)

    def _bytes_of(self, source: int, piece: str) -> bytes:
        if self._pieces.is_unknown(source) or self._pieces.is_control(source):
            return b""
        if self._pieces.is_byte(source):
            return bytes([int(piece[3:5], 16)])
        return piece.replace(_SPACE_MARK, " ").encode()

    def encode(self, text: str) -> IdArray:
        """Ids of a text; never `<doc>`, whatever the text says."""
        size = len(to_bytes(text))
        parts = [part for part in _SEPARATORS.split(text) if part]
        plain = list(chain.from_iterable(_cut(part) for part in parts if not _separates(part)))
        encoded = iter(self._pieces.encode(plain, num_threads=self._threads))
        source: list[list[int]] = []
        for part in parts:
            if part == "\n":
                source.append(self._newline)
            elif _separates(part):
                source.append([self._byte_pieces[byte] for byte in to_bytes(part)])
            else:
                source.extend(next(encoded) for _ in _cut(part))
        ids = self._table.rank_V[np.fromiter(chain.from_iterable(source), dtype=np.int64)]
        assert int(self.byte_length_V[ids].sum()) == size, "encoding lost text"
        assert not (ids == self.doc_id).any(), "text became <doc>"
        return ids

    def decode(self, ids: ArrayLike) -> str:
        """Text of ids, without `<doc>`."""
        return self._table.to_text(ids)

    def decode_bytes(self, ids: ArrayLike) -> bytes:
        """Raw bytes of ids, without `<doc>`."""
        return self._table.to_bytes(ids)

    def reranked(self, counts_V: ArrayLike) -> tuple["BpeTokenizer", IdArray]:
        """The same pieces ranked by counts of the present ids, and the new id of each of them."""
        new_V = rank_by_count(counts_V)
        return BpeTokenizer(self._model, new_V[self._table.rank_V]), new_V

    def save(self, folder: Path) -> None:
        """Write tokenizer.json and tokenizer.model into a folder."""
        write_tokenizer_file(folder, self.kind, self.digest, self._table.rank_V)
        (folder / MODEL_FILE).write_bytes(self._model)


def _separates(part: str) -> bool:
    return _SEPARATORS.fullmatch(part) is not None


def _cut(part: str) -> Iterator[str]:
    return (part[start : start + _LONGEST] for start in range(0, len(part), _LONGEST))


def _plain(text: str) -> Iterator[str]:
    """The stretches of a text that SentencePiece gets to see."""
    for part in _SEPARATORS.split(text):
        if part and not _separates(part):
            yield from _cut(part)


def _load(model: bytes) -> sentencepiece.SentencePieceProcessor:
    try:
        pieces = sentencepiece.SentencePieceProcessor(model_proto=model)
    except RuntimeError as error:
        raise ValueError(f"is no SentencePiece model ({len(model)} bytes)") from error
    if not pieces.is_unknown(_SOURCE_DOC):
        raise ValueError(f"has no unknown piece at {_SOURCE_DOC} that could become <doc>")
    needed = ["\n", *(f"<0x{byte:02X}>" for byte in range(256))]
    if any(pieces.is_unknown(pieces.piece_to_id(piece)) for piece in needed):
        raise ValueError("has no newline piece or no byte fallback, so it would lose text")
    return pieces


def _explain(error: str, vocabulary: int) -> str:
    """Turn SentencePiece's words about a vocabulary size into what to change."""
    key = "data.tokenizer.vocabulary"
    if found := re.search(r"Vocabulary size too high \(\d+\).*?<= (\d+)", error):
        largest = int(found[1])
        # 257 ids and the characters alone: no pair repeats, so no smaller number helps either.
        remedy = f"set it to at most {largest} or " if largest >= 300 else ""
        return (
            f"{key}: {vocabulary} ids asked for, but the training text gives at most {largest}; "
            f"{remedy}use more text or kind: bytes"
        )
    if found := re.search(r"required_chars\. \d+ vs (\d+)", error):
        return (
            f"{key}: {vocabulary} ids asked for, but the characters of the training text "
            f"alone need {found[1]}; set it above {found[1]}, or use kind: bytes"
        )
    return f"data.tokenizer: SentencePiece cannot train {vocabulary} ids on this text: {error}"
