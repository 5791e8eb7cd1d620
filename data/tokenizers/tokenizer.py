"""What every tokenizer offers. How text becomes source ids is its scheme's business."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from numpy.typing import ArrayLike

from data.tokenizers.pieces import IdArray, PieceTable, rank_by_count
from data.tokenizers.saved import MODEL_FILE, write_tokenizer_file

CHANGED = "some of this text came back changed"


class Scheme(Protocol):
    """From text to source ids; a kind's own part of a tokenizer.

    Attributes:
        kind: its name in the registry.
        source_bytes: the bytes that each source id stands for; nothing for `<doc>`.
        source_doc: the source id of `<doc>`, which no text becomes.
        source_unknown: the source id of text that no piece covers, where there is such text.
        losses: what a text may lose, in words; empty where every text comes back exactly.
        identity: whatever decides how text becomes source ids, ready for JSON.
        model: the SentencePiece model to save, where there is one.
        lower_case: whether text is lower-cased first.
    """

    kind: str
    source_bytes: Sequence[bytes]
    source_doc: int
    source_unknown: int | None
    losses: tuple[str, ...]
    identity: Sequence[str]
    model: bytes | None
    lower_case: bool

    def encode(self, text: str) -> IdArray:
        """Source ids of a text (lower-cased already, where that is asked for)."""
        ...


class Tokenizer:
    """Text to ids and back; ids are ranked by training frequency, 0 the most frequent.

    Attributes:
        kind: its name in the registry.
        vocabulary_size: number of ids, `<doc>` among them.
        doc_id: the reserved id that stands before every document; text never becomes it.
        unknown_id: the id of text that no piece covers; None where there is no such text.
        digest: hash of all that decides the ids; equal digests give equal ids.
        losses: what a text may lose, in words; empty where every text comes back exactly.
        byte_length_V: raw bytes that each id stands for, 0 for `<doc>`; None where text may be
            lost, because bits per byte then mean nothing.
    """

    def __init__(
        self, scheme: Scheme, rank_V: ArrayLike | None = None, *, came_back: bool = True
    ) -> None:
        """Take a scheme and the rank of each of its source ids.

        Args:
            scheme: from text to source ids.
            rank_V: the id of each source id (None: their own order).
            came_back: False where a text was seen to come back changed.

        Raises:
            ValueError: the ranks do not fit the scheme.
        """
        self._scheme = scheme
        self._came_back = came_back
        self._table = PieceTable(scheme.source_bytes, scheme.source_doc, rank_V)
        self.kind = scheme.kind
        self.vocabulary_size = self._table.size
        self.doc_id = self._table.doc_id
        unknown = scheme.source_unknown
        self.unknown_id = None if unknown is None else int(self._table.rank_V[unknown])
        self.digest = self._table.digest(self.kind, scheme.lower_case, *scheme.identity)
        self.losses = scheme.losses or (() if came_back else (CHANGED,))
        self.byte_length_V = None if self.losses else self._table.byte_length_V

    def folded(self, text: str) -> str:
        """The text that is encoded: lower-cased where that is asked for, else as it is."""
        return text.lower() if self._scheme.lower_case else text

    def encode(self, text: str) -> IdArray:
        """Ids of a text; never `<doc>`, whatever the text says."""
        ids = self._table.rank_V[self._scheme.encode(self.folded(text))]
        assert not (ids == self.doc_id).any(), "text became <doc>"
        return ids

    def decode(self, ids: ArrayLike) -> str:
        """Text of ids, without `<doc>`; a character cut at either end becomes U+FFFD."""
        return self._table.to_text(ids)

    def decode_bytes(self, ids: ArrayLike) -> bytes:
        """Bytes of ids, without `<doc>`."""
        return self._table.to_bytes(ids)

    def reranked(self, counts_V: ArrayLike) -> "tuple[Tokenizer, IdArray]":
        """The same pieces ranked by counts of the present ids, and the new id of each of them."""
        new_V = rank_by_count(counts_V)
        ranks_V = new_V[self._table.rank_V]
        return Tokenizer(self._scheme, ranks_V, came_back=self._came_back), new_V

    def changed(self) -> "Tokenizer":
        """The same tokenizer, known to change some text."""
        return Tokenizer(self._scheme, self._table.rank_V, came_back=False)

    def save(self, folder: Path) -> None:
        """Write tokenizer.json, and tokenizer.model where there is one, into a folder."""
        model = self._scheme.model
        write_tokenizer_file(
            folder,
            kind=self.kind,
            digest=self.digest,
            rank_V=self._table.rank_V,
            lower_case=self._scheme.lower_case,
            came_back=self._came_back,
            model_sha256=None if model is None else hashlib.sha256(model).hexdigest(),
        )
        if model is not None:
            (folder / MODEL_FILE).write_bytes(model)
