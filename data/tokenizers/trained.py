"""SentencePiece models trained on an experiment's own training text."""

import io
import re
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sentencepiece

from data.tokenizers.exact import LONGEST, ExactPieces, plain_parts
from data.tokenizers.kind import TokenizerKind
from data.tokenizers.model_file import read_model

if TYPE_CHECKING:
    from data.config import TokenizerConfig

DEFAULT_VOCABULARY = 4096


def trained_kind(name: str, *, sample_bytes: int) -> TokenizerKind:
    """A kind that SentencePiece trains.

    Args:
        name: in the registry, and what SentencePiece calls the algorithm.
        sample_bytes: it is trained on so much text at most.
    """

    def make(config: "TokenizerConfig", texts: Iterable[str], base: Path) -> ExactPieces:
        folded = (text.lower() for text in texts) if config.lower_case else texts
        model = train_pieces(name, folded, config.vocabulary or DEFAULT_VOCABULARY)
        return load(model, config.lower_case)

    def load(model: bytes, lower_case: bool) -> ExactPieces:
        processor, file = read_model(model)
        if file.dummy_prefix:
            raise ValueError(f"was not trained as kind {name}: it puts a space before texts")
        return ExactPieces(name, model, processor, file, lower_case=lower_case)

    return TokenizerKind(
        make=make,
        load=load,
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
