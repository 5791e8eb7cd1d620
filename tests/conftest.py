"""Fixtures that several test modules share."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

import retrain
import search
from tests.judge import Checked, answer
from tests.mutation import FILE

TINY = """\
run: {log_every: 5, validate_every: 10, checkpoint_every: 7, threads: 1, device: cpu}
data:
  corpus: files
  files: {train: FOLDER/train.txt, valid: FOLDER/valid.txt, test: FOLDER/test.txt}
  tokenizer: {kind: bytes}
  batch: 4
  segment: 16
  evaluation_streams: 3
model:
  slots: 4
  d_model: 16
  n_heads: 2
  d_ffn: 24
  memory: 8
  dropout: 0.1
  softmax: {cutoffs: [20, 60], factor: 2}
search:
  steps: 30
  optimiser: {lr: 0.003, warmup_steps: 3}
retrain:
  steps: 25
  optimiser: {lr: 0.003, warmup_steps: 3}
compare:
  opponents: [interleaved, par, random]
  latency_repeats: 3
"""


def write_text(path: Path, size: int, seed: int) -> None:
    """Words of a small language, so that there is something to learn."""
    generator = random.Random(seed)
    words = [f"{a}{b}{c}" for a in "kstr" for b in "aeiou" for c in ("n", "l", "ndo", "rta")]
    lines = []
    while sum(map(len, lines)) < size:
        lines.append(" ".join(generator.choices(words, k=8)) + ".\n")
    path.write_text("".join(lines), encoding="utf-8")


def write_experiment(folder: Path) -> Path:
    """The tiny experiment and its texts."""
    for seed, (name, size) in enumerate({"train": 6000, "valid": 900, "test": 1200}.items()):
        write_text(folder / f"{name}.txt", size, seed)
    path = folder / "tiny.yaml"
    path.write_text(TINY.replace("FOLDER", folder.as_posix()), encoding="utf-8")
    return path


@pytest.fixture
def experiment_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tiny experiment on its own texts; its cache and its runs stay in tmp_path."""
    monkeypatch.setenv("PARNAS_CACHE", str(tmp_path / "cache"))
    return write_experiment(tmp_path)


@contextmanager
def without_figures(folder: Path) -> Iterator[None]:
    """Runs draw nothing, and keep their cache in a folder."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PARNAS_CACHE", str(folder / "cache"))
        patched.setattr("report.trajectory.write_search_figures", lambda folder: [])
        patched.setattr("report.page.write_report", lambda folder: folder / "report.html")
        yield


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with a search and a retraining of the tiny experiment that nothing disturbed."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with without_figures(folder):
        arguments = [str(write_experiment(folder)), "--run", str(folder / "run")]
        assert search.main(arguments) == 0
        assert retrain.main([*arguments, "--layout", "a d a d"]) == 0
    return folder / "run"


@pytest.fixture
def _without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of whole phases that do not look at what is drawn."""
    monkeypatch.setattr("report.trajectory.write_search_figures", lambda folder: [])
    monkeypatch.setattr("report.page.write_report", lambda folder: folder / "report.html")


@pytest.fixture
def check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Checked]:
    """Runs a script with --check on a mutated file: exit code and stderr; nothing may be left."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PARNAS_CACHE", str(tmp_path / "cache"))
    yield lambda mutant, number: (answer(mutant, number), capsys.readouterr().err)
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


@pytest.fixture(autouse=True)
def _seeded_and_restored() -> Iterator[None]:
    """Every test starts from one seed and leaves torch's settings as they were."""
    threads, random_state = torch.get_num_threads(), torch.get_rng_state()
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)
    torch.set_rng_state(random_state)
