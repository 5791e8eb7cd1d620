"""What every tokenizer offers, how one is trained, and how one is loaded."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import ArrayLike

from data.bpe import DEFAULT_VOCABULARY, MODEL_FILE, BpeTokenizer, train_bpe
from data.byte_level import ByteTokenizer
from data.config import TokenizerConfig
from data.pieces import IdArray
from data.tokenizer_file import FILE, read_tokenizer_file


class Tokenizer(Protocol):
    """Text to ids and back without loss; ids ranked by training frequency, 0 the most frequent.

    Attributes:
        kind: `bpe` or `bytes`.
        vocabulary_size: number of ids, `<doc>` among them.
        doc_id: the reserved id that stands before every document; text never becomes it.
        digest: hash of the pieces and ranks; equal digests give equal ids.
        byte_length_V: raw bytes that each id stands for, 0 for `<doc>`.
    """

    kind: str
    vocabulary_size: int
    doc_id: int
    digest: str
    byte_length_V: IdArray

    def encode(self, text: str) -> IdArray:
        """Ids of a text; never `<doc>`."""
        ...

    def decode(self, ids: ArrayLike) -> str:
        """Text of ids, without `<doc>`; a character cut at either end becomes U+FFFD."""
        ...

    def decode_bytes(self, ids: ArrayLike) -> bytes:
        """Raw bytes of ids, without `<doc>`."""
        ...

    def reranked(self, counts_V: ArrayLike) -> "tuple[Tokenizer, IdArray]":
        """The same pieces ranked by counts of the present ids, and the new id of each of them."""
        ...

    def save(self, folder: Path) -> None:
        """Write the tokenizer's files into a folder."""
        ...


def train_tokenizer(config: TokenizerConfig, texts: Iterable[str]) -> Tokenizer:
    """Train on the training split's texts; ids are not ranked yet (`reranked` does that)."""
    if config.kind == "bytes":
        return ByteTokenizer()
    return BpeTokenizer(train_bpe(texts, config.vocabulary or DEFAULT_VOCABULARY))


def load_tokenizer(folder: Path | str) -> Tokenizer:
    """Load what `save` wrote.

    Raises:
        ValueError: a file is damaged, of an unknown version, or belongs to another tokenizer.
        OSError: a file cannot be read.
    """
    folder = Path(folder)
    saved = read_tokenizer_file(folder)
    path: Path = folder / (MODEL_FILE if saved.kind == "bpe" else FILE)
    try:
        tokenizer: Any = (
            BpeTokenizer(path.read_bytes(), saved.ranks)
            if saved.kind == "bpe"
            else ByteTokenizer(saved.ranks)
        )
    except ValueError as error:
        raise ValueError(f"{path}: {error}; save the tokenizer again") from error
    if tokenizer.digest != saved.digest:
        raise ValueError(
            f"{path}: pieces and ranks have digest {tokenizer.digest[:12]}, but {folder / FILE} "
            f"says {saved.digest[:12]}; the files are damaged or of two tokenizers, save it again"
        )
    return tokenizer
