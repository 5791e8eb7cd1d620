"""Tokenizers of SentencePiece: trained on the corpus (BPE, unigram) or given; exact or lossy.

Encoding is exact for every model with byte fallback that leaves characters and spaces alone.
Numbers of fields and what they mean are those of sentencepiece_model.proto.
"""

import hashlib
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import sentencepiece

from data.corpora.base import readable_path
from data.text import STRAY_BYTES, to_bytes
from data.tokenizers.tokenizer import IdArray, Scheme, TokenizerKind
from utils.cores import usable_cores

if TYPE_CHECKING:
    from data.config import TokenizerConfig

DEFAULT_VOCABULARY = 4096
# Longer lines are cut: SentencePiece drops training lines above a limit without a word,
# and needs much memory for very long ones.
LONGEST = 16_384
GIVEN = "given"
# SentencePiece writes a space as U+2581 and would read U+2581 back as a space, so that character
# never reaches it, and neither do bytes that are no UTF-8; both become byte pieces. Newlines are
# kept apart too, which makes encoding line by line exact.
SPACE_MARK = "\u2581"
_SEPARATORS = re.compile(f"([\n{SPACE_MARK}{STRAY_BYTES}])")
_LINES = re.compile("[^\n]*\n|[^\n]+")
_STRAY = re.compile(f"[{STRAY_BYTES}]")
# What SentencePiece itself writes for a piece that it does not know.
_UNKNOWN_TEXT = " \u2047 ".encode()
# Types of pieces; 4 is one that the user defined, 5 an unused one.
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 1, 2, 3, 4, 6


class SentencePieceModel:
    """A SentencePiece model that was read: what encodes with it, and what it says about itself.

    `pieces` are text, score and type of each source id; spaces are written as U+2581.
    """

    def __init__(self, content: bytes) -> None:
        """Read a serialised model; ValueError where it is none that text can be encoded with."""
        # Loading it takes longer than reading an experiment, and most commands need no model.
        from google.protobuf.message import DecodeError
        from sentencepiece import sentencepiece_model_pb2

        try:
            self.proto: Any = sentencepiece_model_pb2.ModelProto.FromString(content)
            self.pieces = [(p.piece, p.score, p.type) for p in self.proto.pieces]
            # What is no UTF-8 comes as bytes from the one, and is read by the other.
            if not self.pieces or not all(isinstance(text, str) for text, _, _ in self.pieces):
                raise ValueError("a piece is no text, or there is none")
            self.processor = sentencepiece.SentencePieceProcessor(model_proto=content)
        except (DecodeError, RuntimeError, ValueError) as error:
            raise ValueError(f"is no SentencePiece model ({len(content)} bytes)") from error
        self.content = content
        # Whether text that no piece covers becomes bytes, and whether a space precedes every text.
        self.byte_fallback = bool(self.proto.trainer_spec.byte_fallback)
        self.dummy_prefix = bool(self.proto.normalizer_spec.add_dummy_prefix)

    def without_dummy_prefix(self) -> "SentencePieceModel":
        """The model with no space put before texts."""
        proto = type(self.proto)()
        proto.CopyFrom(self.proto)
        proto.normalizer_spec.add_dummy_prefix = False
        return SentencePieceModel(proto.SerializeToString())

    @property
    def losses(self) -> tuple[str, ...]:
        """Losses of text, whether or not a space is put before it; empty where there are none."""
        rules = self.proto.normalizer_spec
        losses = {
            "characters are normalised": bool(rules.precompiled_charsmap),
            "extra spaces are removed": rules.remove_extra_whitespaces,
            "spaces are not marked": not rules.escape_whitespaces,
            "what no piece covers becomes <unk>": not self.byte_fallback,
        }
        return tuple(words for words, applies in losses.items() if applies)

    @property
    def identity(self) -> str:
        """Hash of all that decides how text becomes ids; names of rules do not."""
        training, rules = self.proto.trainer_spec, self.proto.normalizer_spec
        spec = [
            training.model_type,
            training.byte_fallback,
            training.treat_whitespace_as_suffix,
            hashlib.sha256(rules.precompiled_charsmap).hexdigest(),
            rules.add_dummy_prefix,
            rules.remove_extra_whitespaces,
            rules.escape_whitespaces,
            self.pieces,
        ]
        return hashlib.sha256(json.dumps(spec).encode()).hexdigest()

    @property
    def raw_bytes(self) -> list[bytes]:
        """Bytes that each piece stands for; control pieces stand for nothing."""
        return [_raw(text, kind) for text, _, kind in self.pieces]

    def encode(self, parts: Sequence[str]) -> list[list[int]]:
        """Source ids of each part; they do not depend on the number of threads."""
        return self.processor.encode(parts, num_threads=min(usable_cores(), 8))


def _raw(text: str, kind: int) -> bytes:
    if kind in (_UNKNOWN, _CONTROL):
        return b""
    if kind == _BYTE:
        return bytes([int(text[3:5], 16)])
    return text.replace(SPACE_MARK, " ").encode()


class ExactPieces(Scheme):
    """The pieces of a model that loses nothing.

    <unk> is an id that byte fallback leaves without use: it becomes `<doc>`.
    """

    def __init__(
        self,
        kind: str,
        model: SentencePieceModel,
        *,
        lower_case: bool = False,
        save: bytes | None = None,
    ) -> None:
        """Take a model that puts no space before texts; `save` is the one to save in its place."""
        if model.losses:
            raise ValueError(f"would lose text: {'; '.join(model.losses)}")
        self.kind = kind
        self.model = model.content if save is None else save
        self.lower_case = lower_case
        self.losses = ("text is lower-cased",) if lower_case else ()
        self.identity = (model.identity,)
        self.source_doc = model.processor.unk_id()
        self.source_bytes = model.raw_bytes
        self._model = model
        spelt = (_NORMAL, _USER_DEFINED, _BYTE)
        sources = {text: i for i, (text, _, kind) in enumerate(model.pieces) if kind in spelt}
        self._byte_pieces = [sources[f"<0x{byte:02X}>"] for byte in range(256)]
        self._newline = sources.get("\n", self._byte_pieces[ord("\n")])
        # A model trained on text without spaces spells the mark of a space in three bytes.
        mark = [self._byte_pieces[byte] for byte in SPACE_MARK.encode()]
        self._spelt_mark = None if SPACE_MARK in sources else mark

    def encode(self, text: str) -> IdArray:
        """Source ids of a text."""
        parts = [part for part in _SEPARATORS.split(text) if part]
        encoded = iter(self._model.encode(list(plain_parts(text))))
        source: list[list[int]] = []
        for part in parts:
            if part == "\n":
                source.append([self._newline])
            elif _separates(part):
                source.append([self._byte_pieces[byte] for byte in to_bytes(part)])
            else:
                source.extend(self._spaced(next(encoded)) for _ in _cut(part))
        return np.fromiter(chain.from_iterable(source), dtype=np.int64)

    def _spaced(self, source: list[int]) -> list[int]:
        if self._spelt_mark is None:
            return source
        spaced: list[int] = []
        for source_id in source:
            spaced.append(source_id)
            if spaced[-3:] == self._spelt_mark:
                spaced[-3:] = [self._byte_pieces[ord(" ")]]
        return spaced


class LossyPieces(Scheme):
    """A model as it is, line by line; its own rules say what becomes of spaces and line ends.

    Text that no piece covers becomes <unk>, and `<doc>` is one more id; with byte fallback there is
    no such text, and <unk> becomes `<doc>`.
    """

    kind = GIVEN

    def __init__(self, model: SentencePieceModel) -> None:
        """Take a model that was read."""
        prefix = ("a space is put before every line",) if model.dummy_prefix else ()
        self.losses = (*model.losses, *prefix)
        self.model = model.content
        self.identity = (model.identity,)
        self._model = model
        pieces = model.raw_bytes
        self.source_doc = model.processor.unk_id()
        if not model.byte_fallback:
            self.source_unknown, self.source_doc = self.source_doc, len(pieces)
            pieces[self.source_unknown] = _UNKNOWN_TEXT
            pieces.append(b"")
        self.source_bytes = pieces

    def encode(self, text: str) -> IdArray:
        """Source ids of a text; bytes that are no UTF-8 count as U+FFFD."""
        lines = _LINES.findall(_STRAY.sub("\ufffd", text))
        encoded = self._model.encode([part for line in lines for part in _cut(line)])
        return np.fromiter(chain.from_iterable(encoded), dtype=np.int64)


def load_given(content: bytes, lower_case: bool = False) -> ExactPieces | LossyPieces:
    """Read a model; one that would only put a space before texts does not, and loses nothing."""
    model = SentencePieceModel(content)
    if model.losses:
        return LossyPieces(model)
    return ExactPieces(
        GIVEN, model.without_dummy_prefix() if model.dummy_prefix else model, save=content
    )


def plain_parts(text: str) -> Iterator[str]:
    """The stretches of a text that SentencePiece gets to see: no newlines, no U+2581."""
    for part in _SEPARATORS.split(text):
        if part and not _separates(part):
            yield from _cut(part)


def _cut(part: str) -> Iterator[str]:
    return (part[start : start + LONGEST] for start in range(0, len(part), LONGEST))


def _separates(part: str) -> bool:
    return _SEPARATORS.fullmatch(part) is not None


def trained_kind(name: str, *, sample_bytes: int) -> TokenizerKind:
    """A kind that SentencePiece trains, which calls the algorithm by the same name."""

    def make(config: "TokenizerConfig", texts: Iterable[str], base: Path) -> ExactPieces:
        folded = (text.lower() for text in texts) if config.lower_case else texts
        model = train_pieces(name, folded, config.vocabulary or DEFAULT_VOCABULARY)
        return load_trained(model, config.lower_case)

    def load_trained(content: bytes, lower_case: bool) -> ExactPieces:
        model = SentencePieceModel(content)
        if model.dummy_prefix:
            raise ValueError(f"was not trained as kind {name}: it puts a space before texts")
        return ExactPieces(name, model, lower_case=lower_case)

    def key(config: "TokenizerConfig", base: Path) -> dict[str, Any]:
        return {
            "vocabulary": config.vocabulary or DEFAULT_VOCABULARY,
            "lower_case": config.lower_case,
            "sentencepiece": sentencepiece.__version__,
        }

    return TokenizerKind(
        make=make,
        load=load_trained,
        key=key,
        ids=lambda config: config.vocabulary or DEFAULT_VOCABULARY,
        takes=frozenset({"vocabulary", "lower_case"}),
        sample_bytes=sample_bytes,
    )


def train_pieces(algorithm: str, texts: Iterable[str], vocabulary: int) -> bytes:
    """The serialised model that SentencePiece trains; `vocabulary` counts `<doc>` too.

    ValueError where the text does not allow a vocabulary of this size.
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
    key = "data.tokenizer.vocabulary"
    if match := re.search(r"Vocabulary size too high \(\d+\).*?<= (\d+)", error):
        largest = int(match[1])
        # 257 ids and the characters alone: no pair repeats, so no smaller number helps either.
        remedy = f"set it to at most {largest} or " if largest >= 300 else ""
        return (
            f"{key}: {vocabulary} ids asked for, but the training text gives at most {largest}; "
            f"{remedy}use more text or kind: bytes"
        )
    return f"data.tokenizer: SentencePiece cannot train {vocabulary} ids on this text: {error}"


# Byte-pair encoding (Sennrich et al. 2016, arXiv 1508.07909). SentencePiece holds its training text
# in memory and counts every pair in it.
BPE_KIND = trained_kind("bpe", sample_bytes=100_000_000)
# A unigram language model of pieces (Kudo 2018, arXiv 1804.10959). Its training takes about 3
# seconds a megabyte on one CPU core, twenty times that of bpe.
UNIGRAM_KIND = trained_kind("unigram", sample_bytes=4_000_000)


def _read_given(config: "TokenizerConfig", base: Path) -> ExactPieces | LossyPieces:
    assert config.model is not None, "the config's own check lets no kind: given without a model"
    path = readable_path(base, config.model, "data.tokenizer.model", "file")
    try:
        return load_given(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"data.tokenizer.model: {path}: {error}") from error


def _given_key(config: "TokenizerConfig", base: Path) -> dict[str, Any]:
    (identity,) = _read_given(config, base).identity
    return {"model": identity, "sentencepiece": sentencepiece.__version__}


GIVEN_KIND = TokenizerKind(
    make=lambda config, texts, base: _read_given(config, base),
    load=load_given,
    key=_given_key,
    ids=lambda config: None,
    takes=frozenset({"model"}),
    needs="model",
)
