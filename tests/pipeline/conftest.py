"""Fixtures of tests of whole phases."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import derive
from data import CORPORA, Corpus, count_words
from data.corpora import CorpusKind
from data.corpora.local import load_files
from pipeline.context import RunPlan, set_up
from pipeline.experiment import load_experiment
from tests.test_pipeline import run


def plan_of(file: Path, folder: Path, *settings: str) -> RunPlan:
    return set_up(load_experiment(file, settings), folder)


PlanWith = Callable[..., RunPlan]


@pytest.fixture
def plan_with(experiment_file: Path, tmp_path: Path) -> PlanWith:
    """What makes the plan of the tiny experiment with settings."""
    return lambda *settings: plan_of(experiment_file, tmp_path / "run", *settings)


def plan_of_run(folder: Path, *settings: str) -> RunPlan:
    """The plan of a run folder by the experiment that its search saved."""
    return plan_of(folder / "search/seed-0/experiment.yaml", folder, *settings)


@pytest.fixture
def derived(experiment_file: Path, tmp_path: Path) -> Path:
    """A run with a derived layout and no search."""
    folder = tmp_path / "run"
    run(derive, experiment_file, "--run", folder, "--set", "derive.method=layout",
        "--set", "derive.layout=a d d i")  # fmt: skip
    return folder


@pytest.fixture
def _corpus_with_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """The corpus `files` counts its words, as the WikiText ones do."""

    def load(config: Any, place: Any) -> Corpus:
        corpus = load_files(config, place)
        corpus.notes["words"] = {
            split: sum(count_words(document.text) for document in corpus.documents(split))
            for split in ("valid", "test")
        }
        return corpus

    monkeypatch.setitem(CORPORA, "files", CorpusKind(load, needs="files"))
