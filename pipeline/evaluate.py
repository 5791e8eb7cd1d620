"""A saved model on any text: its folder read, the text scored once."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from data import (
    EvaluationBatch,
    EvaluationStreams,
    Tokenizer,
    count_words,
    encode_documents,
)
from data.text import to_utf8_text
from model import load_model
from pipeline.run_files import Saved
from training.evaluation import Evaluation, evaluate
from training.step import Forward

Options = Mapping[str, int | None]


@dataclass(frozen=True)
class Text:
    """Documents: their ids with `<doc>` before each, and how much they hold.

    `words` is None where there is none, or where the tokenizer loses text.
    """

    tokens: NDArray[np.int64]
    documents: int
    bytes: int
    words: int | None


def read_documents(files: Sequence[Path], tokenizer: Tokenizer, *, line_ends: bool) -> Text:
    """Read UTF-8 files, one document each; with `line_ends` the end of a line counts as a word.

    Raises:
        ValueError: a file is empty or no UTF-8.
    """
    texts = [to_utf8_text(path.read_bytes(), str(path)) for path in files]
    words = sum(count_words(text, line_ends=line_ends) for text in texts)
    return Text(
        tokens=encode_documents(tokenizer, texts),
        documents=len(texts),
        bytes=sum(len(text.encode()) for text in texts),
        words=None if tokenizer.losses else words or None,
    )


@dataclass(frozen=True)
class Measurement:
    """A model, a text, how it is cut (as `CUT`), and where and in what precision it is scored."""

    saved: Saved
    text: Text
    cut: dict[str, int]
    device: torch.device
    precision: str

    def _readable(self, options: Options) -> Options:
        """The options without rows of memory that no stream is long enough to fill."""
        if (memory := options.get("memory")) is None:
            return options
        longest = (len(self.text.tokens) - 1) // self.cut["streams"] + 1 + self.cut["context"]
        return {**options, "memory": min(memory, longest)}

    def run(self, options: Options) -> Evaluation:
        """Score the text once by the model with other options (`adjusted`).

        Raises:
            ValueError: the model gives no finite number.
        """
        model = load_model(self.saved.folder, self._readable(options))
        model = model.to(self.device, torch.float64 if self.precision == "float64" else None)
        streams = _StreamsWithBar(self.text.tokens, **self.cut, words=self.text.words)
        products = "bfloat16" if self.precision == "bfloat16" else "float32"
        lengths_V = self.saved.tokenizer.byte_length_V
        with Forward(self.device, products).autocast():
            evaluation = evaluate(
                model,
                streams,
                byte_length_V=None if lengths_V is None else torch.tensor(lengths_V),
                device=self.device,
            )
        if not math.isfinite(evaluation.nats):
            raise ValueError(
                f"{self.saved.folder}: the model gives {evaluation.nats} nats for this text; "
                "its weights are of no use"
            )
        return evaluation


class _StreamsWithBar(EvaluationStreams):
    """Evaluation streams that show on a terminal how far they are."""

    def __iter__(self) -> Iterator[EvaluationBatch]:
        batches = super().__iter__()
        yield from tqdm(batches, total=len(self), unit="batch", disable=None, leave=False)
