"""A saved model as a folder: its architecture, its tokenizer, and how its own test was cut."""

import re
from dataclasses import dataclass
from pathlib import Path

import torch

from data import Tokenizer, load_tokenizer
from model import Architecture, load_architecture
from model.saving import check_no_pickle
from pipeline.devices import find_device
from pipeline.run_files import MODEL, result_of_model
from utils.files import read_object

# How a text is cut where the model's own test does not say.
CUT = {"streams": 8, "segment": 64, "context": 0}


@dataclass(frozen=True)
class Saved:
    """A model folder whose files are there and belong together; `cut` as in its own test."""

    folder: Path
    architecture: Architecture
    tokenizer: Tokenizer
    cut: dict[str, int]


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


def device_of(name: str) -> torch.device:
    """The device that `--device` names; ValueError where it is none, or not there."""
    if not re.fullmatch(r"auto|cpu|cuda(:\d{1,3})?", name):
        raise ValueError(f"--device: must be auto, cpu, cuda or cuda:N, found {name!r:.40}")
    return find_device(name, "--device")
