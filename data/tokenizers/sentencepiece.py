"""Kinds of tokenizers of SentencePiece: trained on the corpus (BPE, unigram), or a given model."""

import io
import re
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sentencepiece

from data.corpora.base import readable_path
from data.tokenizers.pieces import (
    LARGEST_MODEL,
    LONGEST,
    ExactPieces,
    LossyPieces,
    SentencePieceModel,
    load_given,
    plain_parts,
)
from data.tokenizers.tokenizer import TokenizerKind

if TYPE_CHECKING:
    from data.config import TokenizerConfig

DEFAULT_VOCABULARY = 4096


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
    if match := re.search(r"required_chars\. \d+ vs (\d+)", error):
        return (
            f"{key}: {vocabulary} ids asked for, but the characters of the training text "
            f"alone need {match[1]}; set it above {match[1]}, or use kind: bytes"
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
    with path.open("rb") as file:
        model = file.read(LARGEST_MODEL + 1)
    try:
        return load_given(model)
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
    exact=False,
)
