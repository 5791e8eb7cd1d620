"""Long texts in parts: to be encoded one after the other, and to train a tokenizer on a sample."""

from collections.abc import Iterator

from data.corpora import Corpus

_SAMPLE_PARTS = 64
_LARGEST_PART = 1 << 20


def chunks(text: str, size: int, longest: int) -> Iterator[str]:
    """Cut after newlines, where the tokenizers cut too: the ids are those of the whole text.

    So they are of a text without any newline; in one with some lines longer than a chunk and
    others not, a token at each cut may differ.

    Args:
        text: it is all given back, part by part.
        size: a part ends at the first newline after so many characters.
        longest: a part without a newline there ends after so many.
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
