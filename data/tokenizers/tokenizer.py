"""A tokenizer whose ids are ranked by frequency, how it is saved, what a kind is; that of bytes.

A source id is what the underlying scheme calls a piece; an id is its rank by training frequency.

V vocabulary
"""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel, ConfigDict, FailFast, Field, ValidationError

from data.text import to_bytes
from utils.validation import first_problem

if TYPE_CHECKING:
    from data.config import TokenizerConfig

IdArray = NDArray[np.int64]
FILE = "tokenizer.json"
MODEL_FILE = "tokenizer.model"
VERSION = 2
_REMEDY = "save the tokenizer again"
_LARGEST = 2**24
_Rank = Annotated[int, Field(ge=0, lt=_LARGEST)]


class Scheme(ABC):
    """A kind's own part of a tokenizer, from text to source ids.

    Attributes:
        source_bytes: the bytes that each source id stands for; nothing for `<doc>`.
        source_doc: the source id of `<doc>`, which no text becomes.
        source_unknown: the source id of text that no piece covers, where there is such text.
        losses: what a text may lose, in words; empty where every text comes back exactly.
        identity: whatever decides how text becomes source ids, ready for JSON.
        model: the SentencePiece model to save, where there is one.
    """

    kind: str
    source_bytes: Sequence[bytes]
    source_doc: int
    source_unknown: int | None = None
    losses: tuple[str, ...] = ()
    identity: Sequence[str] = ()
    model: bytes | None = None
    lower_case: bool = False

    @abstractmethod
    def encode(self, text: str) -> IdArray:
        """Source ids of a text (lower-cased already, where that is asked for)."""


class Tokenizer:
    """Text to ids and back; ids are ranked by training frequency, 0 the most frequent.

    Attributes:
        vocabulary_size: number of ids, `<doc>` among them.
        doc_id: the reserved id that stands before every document; text never becomes it.
        unknown_id: the id of text that no piece covers; None where there is no such text.
        digest: hash of all that decides the ids.
        losses: what a text may lose, in words; empty where every text comes back exactly.
        byte_length_V: raw bytes that each id stands for, 0 for `<doc>`; None where text may be
            lost, because bits per byte then mean nothing.
    """

    def __init__(self, scheme: Scheme, rank_V: ArrayLike | None = None) -> None:
        """Take a scheme and the id of each of its source ids (None: their own order)."""
        size = len(scheme.source_bytes)
        self._scheme = scheme
        ranks = np.arange(size) if rank_V is None else rank_V
        self._rank_V: IdArray = np.asarray(ranks, dtype=np.int64)
        if not np.array_equal(np.sort(self._rank_V), np.arange(size)):
            raise ValueError(
                f"ranks are not the numbers 0 to {size - 1} in some order "
                f"(found {len(self._rank_V)} numbers for {size} pieces)"
            )
        self._bytes_V = [scheme.source_bytes[source] for source in np.argsort(self._rank_V)]
        self.kind = scheme.kind
        self.vocabulary_size = size
        self.doc_id = int(self._rank_V[scheme.source_doc])
        assert not self._bytes_V[self.doc_id]
        unknown = scheme.source_unknown
        self.unknown_id = None if unknown is None else int(self._rank_V[unknown])
        identity = [self.kind, scheme.lower_case, *scheme.identity, self._rank_V.tolist()]
        self.digest = hashlib.sha256(json.dumps(identity).encode()).hexdigest()
        self.losses = scheme.losses
        self.byte_length_V: IdArray | None = None
        if not self.losses:
            self.byte_length_V = np.array([len(raw) for raw in self._bytes_V], dtype=np.int64)
            self.byte_length_V.flags.writeable = False

    def folded(self, text: str) -> str:
        """The text that is encoded: lower-cased where that is asked for, else as it is."""
        return text.lower() if self._scheme.lower_case else text

    def encode(self, text: str) -> IdArray:
        """Ids of a text; never `<doc>`, whatever the text says."""
        ids = self._rank_V[self._scheme.encode(self.folded(text))]
        assert not (ids == self.doc_id).any(), "text became <doc>"
        return ids

    def decode(self, ids: ArrayLike) -> str:
        """Text of ids, without `<doc>`; a character cut at either end becomes U+FFFD."""
        return self.decode_bytes(ids).decode(errors="replace")

    def decode_bytes(self, ids: ArrayLike) -> bytes:
        """Bytes of ids, without `<doc>`."""
        flat = np.asarray(ids, dtype=np.int64).ravel()
        if len(flat) and not (flat.min() >= 0 and flat.max() < self.vocabulary_size):
            raise ValueError(
                f"ids from {flat.min()} to {flat.max()}, but the vocabulary has 0 to "
                f"{self.vocabulary_size - 1}; use the tokenizer that made the ids"
            )
        return b"".join([self._bytes_V[i] for i in flat.tolist()])

    def reranked(self, counts_V: ArrayLike) -> "tuple[Tokenizer, IdArray]":
        """The same pieces ranked by counts of the present ids, and the new id of each of them.

        Ids with the same count stay in their order.
        """
        order_V = np.argsort(-np.asarray(counts_V, dtype=np.int64), kind="stable")
        new_V = np.empty_like(order_V)
        new_V[order_V] = np.arange(len(order_V))
        return Tokenizer(self._scheme, new_V[self._rank_V]), new_V

    def save(self, folder: Path) -> None:
        """Write tokenizer.json, and tokenizer.model where there is one, into a folder."""
        model = self._scheme.model
        content = {
            "version": VERSION,
            "kind": self.kind,
            "vocabulary_size": self.vocabulary_size,
            "digest": self.digest,
            "lower_case": self._scheme.lower_case,
            "ranks": self._rank_V.tolist(),
        }
        folder.mkdir(parents=True, exist_ok=True)
        (folder / FILE).write_text(json.dumps(content) + "\n", encoding="utf-8")
        if model is not None:
            (folder / MODEL_FILE).write_bytes(model)


class TokenizerFile(BaseModel):
    """Content of tokenizer.json, checked: a model folder may come from elsewhere."""

    model_config = ConfigDict(frozen=True, strict=True)

    version: int = Field(ge=VERSION, le=VERSION)  # strict; a Literal is not
    kind: str
    vocabulary_size: int = Field(ge=1, le=_LARGEST)
    digest: str = Field(max_length=200)
    lower_case: bool
    # Of millions one that is wrong says enough.
    ranks: Annotated[tuple[_Rank, ...], FailFast()]


def read_tokenizer_file(folder: Path) -> TokenizerFile:
    """Read tokenizer.json; ValueError where it is none of this version."""
    path = folder / FILE
    try:
        return TokenizerFile.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise ValueError(
            f"{path}: {first_problem(error)} (this program reads version {VERSION}); {_REMEDY}"
        ) from error


@dataclass(frozen=True)
class TokenizerKind:
    """A kind of tokenizer: how it is made and loaded, and which settings are its own.

    Attributes:
        make: from the settings, the texts of the training split, and the base of relative paths.
        load: from a saved model and `lower_case`.
        key: what decides the pieces beside the corpus, for the name of the cached folder.
        ids: how many ids there will be, from the settings alone; None where only the model says.
        takes: the keys of `data.tokenizer` that it heeds; `needs` is one that must be given.
        sample_bytes: it is trained on so much text at most; 0 where it is not trained.
    """

    make: "Callable[[TokenizerConfig, Iterable[str], Path], Scheme]"
    load: Callable[[bytes, bool], Scheme]
    key: "Callable[[TokenizerConfig, Path], dict[str, Any]]"
    ids: "Callable[[TokenizerConfig], int | None]"
    saves_model: bool = True
    takes: frozenset[str] = frozenset()
    needs: str | None = None
    sample_bytes: int = 0


class Bytes(Scheme):
    """One id a byte."""

    kind = "bytes"
    source_bytes = (*(bytes([byte]) for byte in range(256)), b"")
    source_doc = 256

    def encode(self, text: str) -> IdArray:
        """The bytes themselves."""
        return np.frombuffer(to_bytes(text), dtype=np.uint8).astype(np.int64)


BYTES_KIND = TokenizerKind(
    make=lambda config, texts, base: Bytes(),
    load=lambda model, lower_case: Bytes(),
    key=lambda config, base: {},
    ids=lambda config: len(Bytes.source_bytes),
    saves_model=False,
)
