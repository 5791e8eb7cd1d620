"""Token files of a corpus: the tokenizer is made, the splits are encoded and cached.

V vocabulary   N tokens of a split
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data.cache import INFO, build_folder, default_cache, key_hash
from data.config import DataConfig
from data.corpora import SPLITS, Corpus, CorpusPaths, Split, load_corpus
from data.text import to_bytes
from data.tokenizers import TOKENIZERS, IdArray, Tokenizer, load_tokenizer, train_tokenizer
from utils.files import read_object, sha256_of

_SAMPLE_PARTS = 64
_LARGEST_PART = 1 << 20
FORMAT = 3
TokenArray = NDArray[np.integer[Any]]
Progress = Callable[[str], None]
_CHUNK = 1 << 20
# Of text without newlines; a multiple of what SentencePiece is given at once.
_LONGEST_CHUNK = 1 << 22


def chunks(text: str, size: int, longest: int) -> Iterator[str]:
    """Cut after newlines, where the tokenizers cut too: the ids are those of the whole text.

    A part ends at the first newline after `size` characters, or without one after `longest`.
    """
    start = 0
    while start < len(text):
        newline = text.find("\n", start + size, start + longest)
        end = start + longest if newline < 0 else newline + 1
        yield text[start:end]
        start = end


def sample_share(corpus: Corpus, most_bytes: int) -> float:
    """The part of the training split that a tokenizer is trained on; 1 where none is trained."""
    return min(1.0, (most_bytes or float("inf")) / corpus.notes["bytes"]["train"])


def sample(corpus: Corpus, most_bytes: int) -> Iterator[str]:
    """The training split, or parts spread evenly over it where it is too large."""
    share = sample_share(corpus, most_bytes)
    size = max(1, min(_LARGEST_PART, most_bytes // _SAMPLE_PARTS))
    seen = taken = 0
    for document in corpus.documents("train"):
        for part in [document.text] if share == 1 else chunks(document.text, size, 4 * size):
            if taken <= seen * share:
                taken += len(part)
                yield part
            seen += len(part)


@dataclass(frozen=True)
class Prepared:
    """Everything an experiment needs of its text.

    Attributes:
        notes: those of the corpus, the numbers of its tokens, and of those that stand for no piece.
        tokens: read-only ids of each split, `<doc>` before every document; `valid` and `test` end
            where `validation_tokens` and `test_tokens` say.
        counts_V: how often each id stands in the training split, never increasing.
        folder: where tokenizer and token files lie in the cache.
    """

    corpus: Corpus
    notes: dict[str, Any]
    tokenizer: Tokenizer
    tokens: dict[Split, TokenArray]
    counts_V: IdArray
    folder: Path

    def words(self, split: Split) -> int | None:
        """Words of a held-out split.

        None where the corpus counts none, the split is capped, or the tokenizer loses text: the
        nats are then not those of these words.
        """
        if self.tokenizer.losses:
            return None
        capped = len(self.tokens[split]) < self.notes["tokens"][split]
        counted: dict[str, int] = self.notes.get("words", {})
        return None if capped else counted.get(split)


def prepare(
    config: DataConfig,
    base: Path,
    cache: Path | None = None,
    progress: Progress = lambda message: None,
    is_run: Callable[[Path], bool] = lambda folder: False,
) -> Prepared:
    """Read the corpus, and train its tokenizer and encode it unless the cache has it.

    The other arguments are as in `CorpusPaths`. ValueError: the corpus or the vocabulary cannot be
    had, or a split is too short.
    """
    cache = cache or default_cache()
    corpus = load_corpus(config, CorpusPaths(base, cache, progress, is_run))
    key = _key(config, corpus, base)
    folder = cache / f"{corpus.name}-{key_hash(key)[:16]}"
    if not folder.exists():
        build_folder(folder, key, lambda work: _fill(work, corpus, config, base, progress))
    return _open(folder, corpus, config)


def encode_documents(tokenizer: Tokenizer, texts: Iterable[str]) -> IdArray:
    """The ids of documents as `prepare` writes them, `<doc>` before each."""
    parts: list[IdArray] = []
    for text in texts:
        parts.append(np.array([tokenizer.doc_id], dtype=np.int64))
        parts += [tokenizer.encode(chunk) for chunk in chunks(text, _CHUNK, _LONGEST_CHUNK)]
    return np.concatenate(parts)


def _key(config: DataConfig, corpus: Corpus, base: Path) -> dict[str, Any]:
    tokenizer = config.tokenizer
    kind = TOKENIZERS[tokenizer.kind]
    key = {"format": FORMAT, "corpus": corpus.digest, "tokenizer": tokenizer.kind}
    if sample_share(corpus, kind.sample_bytes) < 1:
        key["tokenizer_bytes"] = kind.sample_bytes
    return {**key, **kind.key(tokenizer, base)}


def _fill(
    folder: Path, corpus: Corpus, config: DataConfig, base: Path, progress: Progress
) -> dict[str, Any]:
    kind = TOKENIZERS[config.tokenizer.kind]
    if kind.sample_bytes:
        share = sample_share(corpus, kind.sample_bytes)
        part = f"{share:.0%} of the training split, evenly spread" if share < 1 else ""
        progress(f"{corpus.name}: training the tokenizer on {part or 'the training split'}")
    unranked = train_tokenizer(config.tokenizer, sample(corpus, kind.sample_bytes), base)
    dtype = np.dtype(np.uint16 if unranked.vocabulary_size <= 1 << 16 else np.uint32)

    # Ids are ranked by how often they stand in the training split, so that is encoded first with
    # ids that are not ranked yet, and then renumbered in place.
    written = {"train": _write(folder, "train", corpus, unranked, dtype, progress)}
    train = np.memmap(folder / "train.bin", dtype=dtype, mode="r+")
    tokenizer, new_V = unranked.reranked(_count(train, unranked.vocabulary_size))
    for start in range(0, len(train), _CHUNK):
        train[start : start + _CHUNK] = new_V[train[start : start + _CHUNK]]
    train.flush()
    for split in SPLITS[1:]:
        written[split] = _write(folder, split, corpus, tokenizer, dtype, progress)
    tokenizer.save(folder)
    return {
        "dtype": dtype.name,
        "tokens": {split: tokens for split, (tokens, _) in written.items()},
        "unknown": {split: unknown for split, (_, unknown) in written.items()},
    }


def _write(
    folder: Path,
    split: Split,
    corpus: Corpus,
    tokenizer: Tokenizer,
    dtype: np.dtype[Any],
    progress: Progress,
) -> tuple[int, int]:
    """How many ids were written, and how many of them stand for text without a piece."""
    total = corpus.notes["bytes"][split]
    tokens = unknown = done = reported = 0
    doc = np.array([tokenizer.doc_id], dtype=dtype)
    with (folder / f"{split}.bin").open("wb") as file:
        for document in corpus.documents(split):
            file.write(doc.tobytes())
            tokens += 1
            for chunk in chunks(document.text, _CHUNK, _LONGEST_CHUNK):
                ids = tokenizer.encode(chunk)
                if not tokenizer.losses and tokenizer.decode_bytes(ids) != to_bytes(chunk):
                    raise ValueError(
                        "data.tokenizer: loses text though its rules say that it does not, so bits "
                        "per byte would be wrong; use another model"
                    )
                unknown += int((ids == tokenizer.unknown_id).sum())
                file.write(ids.astype(dtype).tobytes())
                tokens += len(ids)
                done += len(to_bytes(chunk))
            if done == total or done - reported >= 2 * _CHUNK:
                progress(f"{corpus.name}: encoding {split}, {done:,} of {total:,} bytes")
                reported = done
    if tokens < 2:
        raise ValueError(
            f"data: the {split} split of {corpus.name} is {tokens} token long, and at "
            f"least 2 are needed; use a longer text"
        )
    return tokens, unknown


def _count(tokens: TokenArray, size: int) -> IdArray:
    """Count of each id."""
    counts_V = np.zeros(size, dtype=np.int64)
    for start in range(0, len(tokens), _CHUNK):
        counts_V += np.bincount(tokens[start : start + _CHUNK], minlength=size)
    return counts_V


def _open(folder: Path, corpus: Corpus, config: DataConfig) -> Prepared:
    try:
        info = read_object(folder / INFO)
        # The cache outlives runs and is shared: a changed id would change results in silence.
        for name, expected in info["files"].items():
            if sha256_of(folder / name) != expected:
                raise ValueError(f"{name} changed after it was written: its SHA-256 is another")
        whole: dict[Split, TokenArray] = {
            split: np.memmap(folder / f"{split}.bin", dtype=info["dtype"], mode="r")
            for split in SPLITS
        }
        tokenizer = load_tokenizer(folder)
        counts_V = _count(whole["train"], tokenizer.vocabulary_size)
    except (ValueError, KeyError, FileNotFoundError) as error:
        raise ValueError(
            f"{folder}: cached tokens are damaged ({error}); delete this folder and run again"
        ) from error
    limits = {"train": None, "valid": config.validation_tokens, "test": config.test_tokens}
    return Prepared(
        corpus=corpus,
        notes={**corpus.notes, "tokens": info["tokens"], "unknown": info["unknown"]},
        tokenizer=tokenizer,
        tokens={split: tokens[: limits[split]] for split, tokens in whole.items()},
        counts_V=counts_V,
        folder=folder,
    )
