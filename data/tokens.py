"""A corpus as memory-mapped ids: tokenizer and token files, built once and kept in the cache.

V vocabulary, N tokens of a split.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
from numpy.typing import NDArray

from data.bpe import DEFAULT_VOCABULARY
from data.cache import build_folder, cache_errors, damage, default_cache, key_hash, read_info
from data.config import DataConfig
from data.corpora import SPLITS, Corpus, Split, load_corpus
from data.pieces import IdArray
from data.raw import to_bytes
from data.tokenizer import Tokenizer, load_tokenizer, train_tokenizer

FORMAT = 1
TokenArray = NDArray[np.integer[Any]]
Progress = Callable[[str], None]
_CHUNK = 1 << 20
# Of text without newlines; a multiple of what the bpe tokenizer cuts lines into.
_LONGEST_CHUNK = 1 << 22
# SentencePiece holds its training text in memory and counts every pair in it.
_TOKENIZER_BYTES = 100_000_000


@dataclass(frozen=True)
class Prepared:
    """Everything an experiment needs of its text.

    Attributes:
        corpus_digest: sha256 over the corpus's names and bytes.
        notes: what the corpus says about itself.
        tokenizer: trained on the training split only.
        tokens: read-only ids of each split, `<doc>` before every document; `valid` and `test` end
            where `validation_tokens` and `test_tokens` say.
        counts_V: how often each id stands in the training split, never increasing.
        folder: where tokenizer and token files lie in the cache.
    """

    corpus_digest: str
    notes: dict[str, Any]
    tokenizer: Tokenizer
    tokens: dict[Split, TokenArray]
    counts_V: IdArray
    folder: Path


def prepare(
    config: DataConfig,
    base: Path,
    cache: Path | None = None,
    progress: Progress = lambda message: None,
) -> Prepared:
    """Read the corpus, and train its tokenizer and encode it unless the cache has it.

    Args:
        config: corpus and tokenizer of an experiment.
        base: folder that relative paths start from.
        cache: folder for what is built (default: PARNAS_CACHE or ~/.cache/parnas).
        progress: takes one-line messages.

    Raises:
        ValueError: the corpus or the vocabulary cannot be had, or a split is too short.
        OSError: a file cannot be read or written.
    """
    cache = cache or default_cache()
    with cache_errors(cache):
        corpus = load_corpus(config, base, cache, progress)
        key = _key(config, corpus)
        folder = cache / f"{corpus.name}-{key_hash(key)[:16]}"
        problem = damage(folder, key)
        if problem and folder.exists():
            progress(f"{folder}: {problem}; building it again")
        if problem:
            build_folder(folder, key, lambda work: _fill(work, corpus, config, progress))
        return _open(folder, corpus, config)


def scored_bytes(tokens: TokenArray, byte_length_V: IdArray) -> int:
    """Raw bytes of all scored targets, that is of every token but the very first.

    Bits per byte is total nats / ln 2 / this number. `<doc>` adds no bytes, so for a whole split,
    which starts with one, it is the size of the split's raw text.
    """
    chunks = (tokens[start : start + _CHUNK] for start in range(1, len(tokens), _CHUNK))
    return sum(int(byte_length_V[chunk].sum()) for chunk in chunks)


def _key(config: DataConfig, corpus: Corpus) -> dict[str, Any]:
    key: dict[str, Any] = {
        "format": FORMAT,
        "corpus": corpus.digest,
        "tokenizer": config.tokenizer.kind,
    }
    if config.tokenizer.kind == "bpe":
        key["vocabulary"] = config.tokenizer.vocabulary or DEFAULT_VOCABULARY
        key["sentencepiece"] = sentencepiece.__version__
        if _tokenizer_share(corpus) < 1:
            key["tokenizer_bytes"] = _TOKENIZER_BYTES
    return key


def _fill(folder: Path, corpus: Corpus, config: DataConfig, progress: Progress) -> dict[str, Any]:
    """Write tokenizer and token files. The training split is encoded once and then ranked."""
    if config.tokenizer.kind == "bpe":
        part = f"{_tokenizer_share(corpus):.0%} of " if _tokenizer_share(corpus) < 1 else ""
        progress(f"{corpus.name}: training the tokenizer on {part}the training split")
    unranked = train_tokenizer(config.tokenizer, _tokenizer_texts(corpus))
    dtype = np.dtype(np.uint16 if unranked.vocabulary_size <= 1 << 16 else np.uint32)

    counts = {"train": _write(folder, "train", corpus, unranked, dtype, progress)}
    train = np.memmap(_file(folder, "train"), dtype=dtype, mode="r+")
    tokenizer, new_V = unranked.reranked(_count(train, unranked.vocabulary_size))
    for start in range(0, len(train), _CHUNK):
        train[start : start + _CHUNK] = new_V[train[start : start + _CHUNK]]
    train.flush()
    for split in SPLITS[1:]:
        counts[split] = _write(folder, split, corpus, tokenizer, dtype, progress)
    tokenizer.save(folder)
    return {"dtype": dtype.name, "tokens": counts, "tokenizer_digest": tokenizer.digest}


def _write(
    folder: Path,
    split: Split,
    corpus: Corpus,
    tokenizer: Tokenizer,
    dtype: np.dtype[Any],
    progress: Progress,
) -> int:
    """Encode a split, `<doc>` before every document, and prove that nothing was lost."""
    total = corpus.notes["bytes"][split]
    count = done = told = 0
    doc = np.array([tokenizer.doc_id], dtype=dtype)
    with _file(folder, split).open("wb") as file:
        for document in corpus.documents(split):
            file.write(doc.tobytes())
            count += 1
            for chunk in _chunks(document.text):
                ids = tokenizer.encode(chunk)
                raw = to_bytes(chunk)
                assert tokenizer.decode_bytes(ids) == raw, f"lost text in {document.name}"
                file.write(ids.astype(dtype).tobytes())
                count += len(ids)
                done += len(raw)
            if done == total or done - told >= 2 * _CHUNK:
                progress(f"{corpus.name}: encoding {split}, {done:,} of {total:,} bytes")
                told = done
    if count < 2:
        raise ValueError(
            f"data: the {split} split of {corpus.name} is {count} token long, and at least 2 "
            f"are needed; use a longer text"
        )
    return count


def _tokenizer_share(corpus: Corpus) -> float:
    """The part of the training split that the tokenizer is trained on."""
    return min(1.0, _TOKENIZER_BYTES / corpus.notes["bytes"]["train"])


def _tokenizer_texts(corpus: Corpus) -> Iterator[str]:
    """The training split, or chunks spread evenly over it where it is too large."""
    share = _tokenizer_share(corpus)
    seen = taken = 0
    for document in corpus.documents("train"):
        for chunk in [document.text] if share == 1 else _chunks(document.text):
            if taken <= seen * share:
                taken += len(chunk)
                yield chunk
            seen += len(chunk)


def _chunks(text: str) -> Iterator[str]:
    """Cut after newlines, where the tokenizers cut too: the ids are those of the whole text.

    So they are of a text without any newline; in one with some lines longer than a chunk and
    others not, a token at each cut may differ.
    """
    start = 0
    while start < len(text):
        newline = text.find("\n", start + _CHUNK, start + _LONGEST_CHUNK)
        end = start + _LONGEST_CHUNK if newline < 0 else newline + 1
        yield text[start:end]
        start = end


def _count(tokens: TokenArray, size: int) -> IdArray:
    counts_V = np.zeros(size, dtype=np.int64)
    for start in range(0, len(tokens), _CHUNK):
        chunk_V = np.bincount(tokens[start : start + _CHUNK], minlength=size)
        if len(chunk_V) > size:
            raise ValueError(f"holds id {len(chunk_V) - 1}, but the vocabulary has {size} ids")
        counts_V += chunk_V
    return counts_V


def _file(folder: Path, split: Split) -> Path:
    return folder / f"{split}.bin"


def _open(folder: Path, corpus: Corpus, config: DataConfig) -> Prepared:
    info = read_info(folder)
    whole: dict[Split, TokenArray] = {
        split: np.memmap(_file(folder, split), dtype=info["dtype"], mode="r") for split in SPLITS
    }
    try:
        tokenizer = load_tokenizer(folder)
        if tokenizer.digest != info["tokenizer_digest"]:
            raise ValueError("the tokenizer is not the one that made the ids")
        counts_V = _count(whole["train"], tokenizer.vocabulary_size)
    except ValueError as error:
        raise ValueError(
            f"{folder}: cached tokens are damaged ({error}); delete this folder and run again"
        ) from error
    limits = {"train": None, "valid": config.validation_tokens, "test": config.test_tokens}
    return Prepared(
        corpus_digest=corpus.digest,
        notes={**corpus.notes, "tokens": info["tokens"]},
        tokenizer=tokenizer,
        tokens={split: tokens[: limits[split]] for split, tokens in whole.items()},
        counts_V=counts_V,
        folder=folder,
    )
