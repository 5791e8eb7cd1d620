"""Every experiment file in configs/ is valid, and its SuperNet can be built."""

from pathlib import Path

import pytest
import torch

from data.corpora import CORPORA
from model import LanguageModel
from pipeline.experiment import Experiment, load_experiment

CONFIGS = sorted((Path(__file__).resolve().parent.parent / "configs").glob("*.yaml"))


def vocabulary(experiment: Experiment) -> int:
    ids = experiment.data.tokenizer.ids
    assert ids is not None
    return ids


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_an_experiment_file_is_valid_and_its_supernet_builds(path: Path) -> None:
    experiment = load_experiment(path)
    config = experiment.model
    with torch.device("meta"):
        model = LanguageModel(
            [config.completed_candidates()] * config.slots,
            d_model=config.d_model,
            vocabulary_size=vocabulary(experiment),
            softmax=config.softmax,
            dropout=config.dropouts(),
        )
    assert sum(parameter.numel() for parameter in model.parameters()) > 0


def test_every_downloaded_corpus_has_an_experiment_file() -> None:
    shown = {load_experiment(path).data.corpus for path in CONFIGS}
    assert {name for name, kind in CORPORA.items() if kind.takes == "addresses"} <= shown
