"""The `bytes` tokenizer: 256 bytes and `<doc>`."""

from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from data.pieces import IdArray, PieceTable, rank_by_count
from data.raw import to_bytes
from data.tokenizer_file import write_tokenizer_file

SOURCE_DOC = 256


class ByteTokenizer:
    """One id a byte. Attributes as in `Tokenizer`."""

    kind = "bytes"

    def __init__(self, rank_V: ArrayLike | None = None) -> None:
        self._table = PieceTable([bytes([i]) for i in range(256)] + [b""], SOURCE_DOC, rank_V)
        self.vocabulary_size = self._table.size
        self.doc_id = self._table.doc_id
        self.byte_length_V = self._table.byte_length_V
        self.digest = self._table.digest(self.kind)

    def encode(self, text: str) -> IdArray:
        """Ids of a text; never `<doc>`."""
        return self._table.rank_V[np.frombuffer(to_bytes(text), dtype=np.uint8)]

    def decode(self, ids: ArrayLike) -> str:
        """Text of ids, without `<doc>`."""
        return self._table.to_text(ids)

    def decode_bytes(self, ids: ArrayLike) -> bytes:
        """Raw bytes of ids, without `<doc>`."""
        return self._table.to_bytes(ids)

    def reranked(self, counts_V: ArrayLike) -> tuple["ByteTokenizer", IdArray]:
        """The same pieces ranked by counts of the present ids, and the new id of each of them."""
        new_V = rank_by_count(counts_V)
        return ByteTokenizer(new_V[self._table.rank_V]), new_V

    def save(self, folder: Path) -> None:
        """Write tokenizer.json into a folder."""
        write_tokenizer_file(folder, self.kind, self.digest, self._table.rank_V)
