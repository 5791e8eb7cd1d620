"""tokenizer.json and tokenizer_config.json of transformers whose ids are those of our tokenizer.

Pieces are spelled with spaces where SentencePiece writes U+2581. So a space is a character like
others, and U+2581 itself is one that no piece has: it becomes its bytes, as it does here.
"""

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unicodedata import category

from data import Tokenizer
from data.tokenizers.sentencepiece import LONGEST, SPACE_MARK, SentencePieceModel
from data.tokenizers.tokenizer import MODEL_FILE, read_tokenizer_file

DOC = "<doc>"
_BPE = 2  # sentencepiece_model.proto, TrainerSpec.ModelType
_NORMAL = 1  # ModelProto.SentencePiece.Type
# A capital sigma that ends a word, of which str.lower makes another letter than elsewhere.
_LAST_SIGMA = r"\p{Cased}\p{Case_Ignorable}*\K\u03a3(?!\p{Case_Ignorable}*\p{Cased})"
_CHECKED_TEXTS, _PIECES = 1000, 15


def write_tokenizer(tokenizer: Tokenizer, model_folder: Path, folder: Path) -> None:
    """Write both files; the ids of texts made of the tokenizer's own pieces are compared first.

    ValueError: it loses text, is of a kind that transformers gives other ids, or one differs.
    """
    made = converted(tokenizer, model_folder)
    for text in sample_texts(tokenizer):
        if made.encode(text, add_special_tokens=False).ids != tokenizer.encode(text).tolist():
            raise ValueError(
                f"tokenizer: kind {tokenizer.kind} cannot be exported: transformers gives "
                f"{text!r:.60} other ids"
            )
    made.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": DOC,
        "eos_token": DOC,
        "pad_token": DOC,
        "padding_side": "left",
        "clean_up_tokenization_spaces": False,
        # Else a text that says <doc> would become its id.
        "split_special_tokens": True,
        "model_input_names": ["input_ids", "attention_mask"],
    }
    text = json.dumps(config, indent=1) + "\n"
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")


def converted(tokenizer: Tokenizer, model_folder: Path) -> Any:
    """The tokenizer as one of the package tokenizers."""
    from tokenizers import Regex, Tokenizer as Fast, decoders, normalizers, pre_tokenizers

    saved = read_tokenizer_file(model_folder)
    if len(tokenizer.losses) > saved.lower_case:
        raise ValueError(
            f"tokenizer: kind {tokenizer.kind} cannot be exported, because it loses text: "
            f"{'; '.join(tokenizer.losses)}"
        )
    made = Fast(_model(tokenizer, model_folder, saved.ranks))
    if saved.lower_case:
        made.normalizer = normalizers.Sequence(
            [normalizers.Replace(Regex(_LAST_SIGMA), "\u03c2"), normalizers.Lowercase()]
        )
    made.pre_tokenizer = pre_tokenizers.Split(
        Regex(f"[\n{SPACE_MARK}]|[^\n{SPACE_MARK}]{{1,{LONGEST}}}"), "isolated"
    )
    made.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return made


def _model(tokenizer: Tokenizer, model_folder: Path, ranks: Sequence[int]) -> Any:
    from tokenizers import models

    if tokenizer.kind == "bytes":
        names = [f"<0x{byte:02X}>" for byte in range(256)] + [DOC]
        return models.BPE(dict(zip(names, ranks, strict=True)), [], byte_fallback=True)
    model = SentencePieceModel((model_folder / MODEL_FILE).read_bytes())
    if model.proto.trainer_spec.model_type != _BPE:
        raise ValueError(
            f"tokenizer: kind {tokenizer.kind} cannot be exported: where several ways to cut a "
            "text are equally likely, such as runs of spaces, transformers takes another one; "
            "train with data.tokenizer.kind bpe or bytes"
        )
    names = [text.replace(SPACE_MARK, " ") for text, _, _ in model.pieces]
    names[model.processor.unk_id()] = DOC
    score_of = {
        name: score
        for name, (_, score, kind) in zip(names, model.pieces, strict=True)
        if kind == _NORMAL
    }
    vocabulary = dict(zip(names, ranks, strict=True))
    return models.BPE(vocabulary, list(_merges(score_of)), byte_fallback=True)


def _merges(score_of: dict[str, float]) -> Iterator[tuple[str, str]]:
    """All pairs that make a piece, the pieces that SentencePiece makes first at the beginning."""
    for piece in sorted(score_of, key=lambda name: -score_of[name]):
        for place in range(1, len(piece)):
            if piece[:place] in score_of and piece[place:] in score_of:
                yield piece[:place], piece[place:]


def sample_texts(tokenizer: Tokenizer) -> Iterator[str]:
    """Texts made of all pieces in any order, and a few that are odd; the same ones each time."""
    draw = random.Random(0)
    yield from ("", " " * 99, "\n\n", SPACE_MARK, DOC, "<0x41>", "\0\x7f\u2028", "\U0001f600")
    ids = list(range(tokenizer.vocabulary_size))
    for _ in range(-(-_CHECKED_TEXTS * _PIECES // len(ids))):
        draw.shuffle(ids)
        for start in range(0, len(ids), _PIECES):
            # Byte pieces may be no UTF-8, and what stands for them is a character like others; or a
            # character of a later Unicode than Python's, of which it knows no lower case.
            text = tokenizer.decode(ids[start : start + _PIECES])
            yield "".join(each for each in text if category(each) != "Cn")
