"""Tokenizers of SentencePiece: trained on the corpus (BPE, unigram), or the user's own model."""

import io
import re
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import sentencepiece

from data.corpora.base import Place
from data.text import STRAY_BYTES
from data.tokenizers.pieces import (
    LARGEST_MODEL,
    LONGEST,
    ExactPieces,
    IdArray,
    ModelFile,
    cut,
    losses_of,
    plain_parts,
    raw_bytes,
    read_model,
    threads,
    without_dummy_prefix,
)
from data.tokenizers.tokenizer import TokenizerKind

if TYPE_CHECKING:
    from data.config import TokenizerConfig

DEFAULT_VOCABULARY = 4096
GIVEN = "given"
_LINES = re.compile("[^\n]*\n|[^\n]+")
_STRAY = re.compile(f"[{STRAY_BYTES}]")
# What SentencePiece itself writes for a piece that it does not know.
_UNKNOWN = " \u2047 ".encode()


def trained_kind(name: str, *, sample_bytes: int) -> TokenizerKind:
    """A kind that SentencePiece trains.

    Args:
        name: in the registry, and what SentencePiece calls the algorithm.
        sample_bytes: it is trained on so much text at most.
    """

    def make(config: "TokenizerConfig", texts: Iterable[str], base: Path) -> ExactPieces:
        folded = (text.lower() for text in texts) if config.lower_case else texts
        model = train_pieces(name, folded, config.vocabulary or DEFAULT_VOCABULARY)
        return load_trained(model, config.lower_case)

    def load_trained(model: bytes, lower_case: bool) -> ExactPieces:
        processor, file = read_model(model)
        if file.dummy_prefix:
            raise ValueError(f"was not trained as kind {name}: it puts a space before texts")
        return ExactPieces(name, model, processor, file, lower_case=lower_case)

    return TokenizerKind(
        make=make,
        load=load_trained,
        key=_key,
        ids=lambda config: config.vocabulary or DEFAULT_VOCABULARY,
        takes=frozenset({"vocabulary", "lower_case"}),
        sample_bytes=sample_bytes,
    )


def _key(config: "TokenizerConfig", base: Path) -> dict[str, Any]:
    return {
        "vocabulary": config.vocabulary or DEFAULT_VOCABULARY,
        "lower_case": config.lower_case,
        "sentencepiece": sentencepiece.__version__,
    }


def train_pieces(algorithm: str, texts: Iterable[str], vocabulary: int) -> bytes:
    """Train a SentencePiece model on training text.

    Args:
        algorithm: `bpe` or `unigram`.
        texts: documents, or parts of them.
        vocabulary: number of ids, with `<doc>`.

    Returns:
        The serialised model.

    Raises:
        ValueError: the text does not allow a vocabulary of this size.
    """
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=chain.from_iterable(plain_parts(text) for text in texts),
            model_writer=model,
            model_type=algorithm,
            vocab_size=vocabulary,
            unk_id=0,
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
            max_sentence_length=4 * LONGEST + 4,
            num_threads=1,  # pieces are the same for any number, the model file is not
            minloglevel=2,
        )
    except RuntimeError as error:
        raise ValueError(_explain(str(error), vocabulary)) from error
    return model.getvalue()


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


# Byte-pair encoding (Sennrich et al. 2016, arXiv 1508.07909). SentencePiece holds its training text
# in memory and counts every pair in it.
BPE_KIND = trained_kind("bpe", sample_bytes=100_000_000)
# A unigram language model of pieces (Kudo 2018, arXiv 1804.10959). Its training takes about 3
# seconds a megabyte on one CPU core, twenty times that of bpe.
UNIGRAM_KIND = trained_kind("unigram", sample_bytes=4_000_000)


class LossyPieces:
    """A model as it is, line by line; its own rules say what becomes of spaces and line ends.

    Attributes as in `Scheme`. Text that no piece covers becomes <unk>, and `<doc>` is one more id;
    with byte fallback there is no such text, and <unk> becomes `<doc>`.
    """

    kind = GIVEN
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
    return ExactPieces(GIVEN, model, processor, file)


def _make(config: "TokenizerConfig", texts: Iterable[str], base: Path) -> ExactPieces | LossyPieces:
    return _read(config, base)


def _given_key(config: "TokenizerConfig", base: Path) -> dict[str, Any]:
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


GIVEN_KIND = TokenizerKind(
    make=_make,
    load=load,
    key=_given_key,
    ids=lambda config: None,
    takes=frozenset({"model"}),
    needs="model",
    exact=False,
)
