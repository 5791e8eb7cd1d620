"""The `given` tokenizer: the pieces of any SentencePiece model, without loss where it has none."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import sentencepiece

from data.corpora.base import Place
from data.raw import STRAY_BYTES
from data.tokenizers.exact import ExactPieces, cut, losses_of, raw_bytes, threads
from data.tokenizers.kind import TokenizerKind
from data.tokenizers.model_file import (
    LARGEST_MODEL,
    ModelFile,
    read_model,
    without_dummy_prefix,
)
from data.tokenizers.pieces import IdArray

if TYPE_CHECKING:
    from data.config import TokenizerConfig

NAME = "given"
_LINES = re.compile("[^\n]*\n|[^\n]+")
_STRAY = re.compile(f"[{STRAY_BYTES}]")
# What SentencePiece itself writes for a piece that it does not know.
_UNKNOWN = " \u2047 ".encode()


class LossyPieces:
    """A model as it is, line by line; its own rules say what becomes of spaces and line ends.

    Attributes as in `Scheme`. Text that no piece covers becomes <unk>, and `<doc>` is one more id;
    with byte fallback there is no such text, and <unk> becomes `<doc>`.
    """

    kind = NAME
    lower_case = False

    def __init__(
        self, model: bytes, processor: sentencepiece.SentencePieceProcessor, file: ModelFile
    ) -> None:
        """Take a model that was read."""
        prefix = ("a space is put before every line",) if file.dummy_prefix else ()
        self.losses: tuple[str, ...] = (*losses_of(file), *prefix)
        self.model: bytes | None = model
        self.identity: Sequence[str] = (file.identity,)
        self._processor = processor
        unknown, pieces = processor.unk_id(), raw_bytes(file)
        self.source_unknown = None if file.byte_fallback else unknown
        self.source_doc = unknown
        if not file.byte_fallback:
            pieces[unknown] = _UNKNOWN
            self.source_doc = len(pieces)
            pieces.append(b"")
        self.source_bytes: Sequence[bytes] = pieces

    def encode(self, text: str) -> IdArray:
        """Source ids of a text; bytes that are no UTF-8 count as U+FFFD."""
        lines = _LINES.findall(_STRAY.sub("\ufffd", text))
        parts = [part for line in lines for part in cut(line)]
        encoded = self._processor.encode(parts, num_threads=threads())
        return np.fromiter((source for part in encoded for source in part), dtype=np.int64)


def load(model: bytes, lower_case: bool = False) -> ExactPieces | LossyPieces:
    """Read a model; one that would only put a space before texts does not, and loses nothing.

    Raises:
        ValueError: it is no SentencePiece model.
    """
    if lower_case:
        raise ValueError("a given model has its own rules, and cannot be lower-cased")
    processor, file = read_model(model)
    if losses_of(file):
        return LossyPieces(model, processor, file)
    if file.dummy_prefix:
        processor, file = read_model(without_dummy_prefix(model))
    return ExactPieces(NAME, model, processor, file)


def _make(config: "TokenizerConfig", texts: Iterable[str], base: Path) -> ExactPieces | LossyPieces:
    return _read(config, base)


def _key(config: "TokenizerConfig", base: Path) -> dict[str, Any]:
    (identity,) = _read(config, base).identity
    return {"model": identity, "sentencepiece": sentencepiece.__version__}


def _read(config: "TokenizerConfig", base: Path) -> ExactPieces | LossyPieces:
    """The model that the settings name.

    Raises:
        ValueError: it is not there, or no SentencePiece model.
        OSError: it cannot be read.
    """
    assert config.model is not None, "the config's own check lets no kind: given without a model"
    path = Place(base).path(config.model, "data.tokenizer.model", "file")
    where = f"data.tokenizer.model: {path}"
    with path.open("rb") as file:
        model = file.read(LARGEST_MODEL + 1)
    try:
        return load(model)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


KIND = TokenizerKind(
    make=_make,
    load=load,
    key=_key,
    ids=lambda config: None,
    takes=frozenset({"model"}),
    needs="model",
    exact=False,
)
