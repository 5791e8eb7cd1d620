"""The ids of a tokenizer: what bytes each one stands for, ranked by training frequency.

V vocabulary. A *source id* is what the underlying scheme calls a piece, an *id* is its rank.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

IdArray = NDArray[np.int64]


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
