"""Every experiment file in configs/ is valid, and its SuperNet can be built."""

from pathlib import Path

import pytest
import torch

from data.corpora import CORPORA
from model import LanguageModel
from pipeline.experiment import dump_experiment, load_experiment

CONFIGS = sorted((Path(__file__).resolve().parent.parent / "configs").glob("*.yaml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_an_experiment_file_survives_the_round_trip_and_its_supernet_builds(
    path: Path, tmp_path: Path
) -> None:
    experiment = load_experiment(path)
    (tmp_path / "again.yaml").write_text(dump_experiment(experiment))
    assert load_experiment(tmp_path / "again.yaml") == experiment
    config, vocabulary = experiment.model, experiment.data.tokenizer.ids
    assert vocabulary is not None
    with torch.device("meta"):
        model = LanguageModel(
            [config.completed_candidates()] * config.slots,
            d_model=config.d_model,
            vocabulary_size=vocabulary,
            softmax=config.softmax,
            dropout=config.dropouts(),
        )
    assert sum(parameter.numel() for parameter in model.parameters()) > 0


def test_every_downloaded_corpus_has_an_experiment_file() -> None:
    shown = {load_experiment(path).data.corpus for path in CONFIGS}
    assert "quickstart" in {path.stem for path in CONFIGS}
    assert {name for name, kind in CORPORA.items() if kind.takes == "addresses"} <= shown
