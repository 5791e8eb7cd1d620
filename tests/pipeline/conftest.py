"""Fixtures of tests of whole phases."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import derive
from data import CORPORA, Corpus, count_words
from data.corpora import CorpusKind
from data.corpora.local import load_files
from model import Candidate
from nas.costs.model import REFERENCE, CostModel
from pipeline import layout_scores
from pipeline.experiment import load_experiment
from pipeline.plan import RunPlan, set_up
from tests.runs import run_jobs_here
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


# Of the tiny model; a layout's time is their sum and 0.4 ms.
MS = {"attention": 1.0, "dense": 0.5, "identity": 0.01}


def true_ms(layout: tuple[Candidate, ...]) -> float:
    """What a layout takes; of another width than the experiment's as if that were 64."""

    def slot_ms(slot: Any) -> float:
        return MS[slot.label] if slot.label in MS else 0.5 * float(slot.d_ffn) / 64

    return 0.4 + sum(map(slot_ms, layout))


class Clock:
    """Times that add up, and are so many times as long where whole layouts are measured.

    `whole` is that factor, of all or of some by name, but never of the reference; `noise` the
    relative deviation of what is measured whole; `off` the relative error of what a table predicts.
    """

    def __init__(self) -> None:
        self.whole: Mapping[str, float] | float = 1.0
        self.off = self.noise = 0.0
        self.asked = list[list[str]]()

    def times_ms(
        self, measured: Any, workload: str, layouts: Mapping[str, tuple[Candidate, ...]]
    ) -> dict[str, float]:
        self.asked.append(list(layouts))
        times = {name: true_ms(layout) for name, layout in layouts.items()}
        if "rest" in layouts:
            signs = {name: (-1) ** int(name) for name in times if name.isdecimal()}
            return times | {
                name: times[name] * (1 + self.off * sign) for name, sign in signs.items()
            }
        generator = np.random.default_rng(len(self.asked))
        return {
            name: ms * self._factor(name) * (1 + generator.normal(0, self.noise))
            for name, ms in times.items()
        }

    def _factor(self, name: str) -> float:
        if name == REFERENCE:
            return 1.0
        return self.whole if isinstance(self.whole, float) else self.whole.get(name, 1.0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """What times take where this is asked for."""
    made = Clock()
    monkeypatch.setattr(CostModel, "times_ms", lambda self, *rest: made.times_ms(self, *rest))
    return made


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the trainings, which run in this process."""
    names = list[str]()

    def run_here(jobs: Any, **how: Any) -> None:
        names.extend(job.name for job in jobs)
        run_jobs_here(jobs, **how)

    monkeypatch.setattr(layout_scores, "run_all", run_here)
    return names


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
