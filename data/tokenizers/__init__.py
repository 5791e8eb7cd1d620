"""The registry of tokenizers. A kind is a file here and a line in TOKENIZERS."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from data.tokenizers.sentencepiece import BPE_KIND, GIVEN_KIND, UNIGRAM_KIND
from data.tokenizers.tokenizer import (
    BYTES_KIND,
    FILE,
    MODEL_FILE,
    IdArray as IdArray,
    Scheme as Scheme,
    Tokenizer as Tokenizer,
    TokenizerKind as TokenizerKind,
    read_tokenizer_file,
)

if TYPE_CHECKING:
    from data.config import TokenizerConfig

TOKENIZERS: dict[str, TokenizerKind] = {
    "bpe": BPE_KIND,
    "unigram": UNIGRAM_KIND,
    "bytes": BYTES_KIND,
    "given": GIVEN_KIND,
}


def train_tokenizer(
    config: "TokenizerConfig", texts: Iterable[str], base: Path | None = None
) -> Tokenizer:
    """Make the tokenizer that an experiment names; ids are not ranked yet (`reranked` does that).

    `texts` are of the training split; not every kind looks at them. ValueError where the vocabulary
    or the model cannot be had.
    """
    return Tokenizer(TOKENIZERS[config.kind].make(config, texts, base or Path()))


def load_tokenizer(folder: Path | str) -> Tokenizer:
    """Load what `save` wrote.

    ValueError where a file is damaged, of an unknown version or kind, or of another tokenizer.
    """
    folder = Path(folder)
    saved = read_tokenizer_file(folder)
    if saved.kind not in TOKENIZERS:
        raise ValueError(
            f"{folder / FILE}: kind: must be one of {', '.join(TOKENIZERS)}, found "
            f"{saved.kind[:40]!r}; save the tokenizer again"
        )
    kind = TOKENIZERS[saved.kind]
    path = folder / (MODEL_FILE if kind.saves_model else FILE)
    model = path.read_bytes() if kind.saves_model else b""
    try:
        tokenizer = Tokenizer(kind.load(model, saved.lower_case), saved.ranks)
    except ValueError as error:
        raise ValueError(f"{path}: {error}; save the tokenizer again") from error
    if tokenizer.digest != saved.digest:
        raise ValueError(
            f"{path}: pieces and ranks have digest {tokenizer.digest[:12]}, but {folder / FILE} "
            f"says {saved.digest[:12]}; the files are damaged or of two tokenizers, save it again"
        )
    return tokenizer
