"""A saved model on any text: its folder read, the text scored once."""

import math
import re
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
    load_tokenizer,
)
from data.text import to_utf8_text
from model import Architecture, load_architecture, load_model
from model.saving import check_no_pickle
from pipeline.plan import find_device
from pipeline.retrain import MODEL
from pipeline.run_files import result_of_model
from training.evaluation import Evaluation, evaluate
from training.step import Forward
from utils.files import read_object

# How a text is cut where the model's own test does not say.
CUT = {"streams": 8, "segment": 64, "context": 0}
Options = Mapping[str, int | None]


@dataclass(frozen=True)
class Saved:
    """A model folder whose files are there and belong together; `cut` as in its own test."""

    folder: Path
    architecture: Architecture
    tokenizer: Tokenizer
    cut: dict[str, int]


@dataclass(frozen=True)
class Text:
    """Documents: their ids with `<doc>` before each, and how much they hold.

    `words` is None where there is none, or where the tokenizer loses text.
    """

    tokens: NDArray[np.int64]
    documents: int
    bytes: int
    words: int | None


def describe(folder: Path) -> Saved:
    """Read all of a model folder but the weights.

    Raises:
        ValueError: it is no model folder, or a file is damaged or does not fit the others.
    """
    if missing := [name for name in MODEL if not (folder / name).is_file()]:
        raise ValueError(
            f"{folder}: not a model folder ({', '.join(missing)} not found); "
            "give RUN/model or RUN/retrain/NAME/seed-N/model"
        )
    check_no_pickle(folder)
    architecture = load_architecture(folder / "architecture.json")
    tokenizer = load_tokenizer(folder)
    own = (tokenizer.digest, tokenizer.vocabulary_size)
    if own != (architecture.tokenizer.digest, architecture.vocabulary_size):
        raise ValueError(
            f"{folder}: the tokenizer (digest {own[0][:12]}, {own[1]} ids) is not the one that the "
            "model was trained with; copy the whole folder again"
        )
    return Saved(folder, architecture, tokenizer, _cut_of_test(folder))


def _cut_of_test(folder: Path) -> dict[str, int]:
    """Streams, segment and context of its result.json; `CUT` where there is none."""
    path = result_of_model(folder)
    saved = {} if path is None else read_object(path, "delete it or copy it again")
    return {**CUT, **saved.get("evaluation", {})}


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


def device_of(name: str) -> torch.device:
    """The device that `--device` names; ValueError where it is none, or not there."""
    if not re.fullmatch(r"auto|cpu|cuda(:\d{1,3})?", name):
        raise ValueError(f"--device: must be auto, cpu, cuda or cuda:N, found {name!r:.40}")
    return find_device(name, "--device")


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
