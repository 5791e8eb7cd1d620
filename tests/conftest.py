"""Fixtures that several test modules share."""

import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
import torch
from optuna.samplers._lazy_random_state import LazyRandomState

import retrain
import search
from tests.runs import LAYOUT, killed_after, run

# No example is drawn by luck, and no example fails because the machine is busy.
hypothesis.settings.register_profile("parnas", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("parnas")

LONGEST_ID = 200
_MEMORY, _MEMORY_NEEDED_BYTES = Path("/dev/shm"), 4 * 2**30

TINY = """\
run: {log_every: 5, validate_every: 10, checkpoint_every: 7, threads: 1, device: cpu}
data:
  corpus: files
  files: {train: FOLDER/train.txt, valid: FOLDER/valid.txt, test: FOLDER/test.txt}
  tokenizer: {kind: bytes}
  batch: 4
  segment: 16
  evaluation_streams: 7
model:
  n_blocks: 4
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
derive: {method: argmax}
compare: {baselines: [interleaved, par, random], seeds: [0]}
costs: {repeats: 3}
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
        patched.setattr("report.searches.write_search_figures", lambda folder: [])
        patched.setattr("report.page.write_report", lambda folder: folder / "report.html")
        yield


def both_phases(folder: Path, running: Callable[..., None]) -> Path:
    """A run folder in which scripts were run for the tiny experiment."""
    with without_figures(folder):
        arguments = [write_experiment(folder), "--run", folder / "run"]
        running(search, *arguments)
        running(retrain, *arguments, *LAYOUT)
    return folder / "run"


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with a search and a retraining of the tiny experiment that nothing disturbed."""
    return both_phases(tmp_path_factory.mktemp("undisturbed"), run)


@pytest.fixture(scope="session")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Like `undisturbed`, but both phases were killed in step 17, after checkpoints of 7 and 14."""
    return both_phases(tmp_path_factory.mktemp("killed"), partial(killed_after, 16))


def copy_of_run(original: Path, folder: Path, phases: str = "*") -> Path:
    """A copy of a run, as if the experiment file in a folder had made it."""
    shutil.copytree(original.parent / "cache", folder / "cache")
    for phase in original.glob(phases):
        shutil.copytree(phase, folder / "run" / phase.name)
    for saved in folder.glob("run/**/experiment.yaml"):
        saved.write_text(saved.read_text().replace(str(original.parent), str(folder)))
    return folder / "run"


@pytest.fixture
def searched(undisturbed: Path, experiment_file: Path, tmp_path: Path) -> Path:
    """A run folder with the search of `undisturbed`, as if `experiment_file` had made it."""
    return copy_of_run(undisturbed, tmp_path, "search")


@pytest.fixture
def half_way(killed: Path, experiment_file: Path, tmp_path: Path) -> Path:
    """A run folder with the killed phases of `killed`, as if `experiment_file` had made it."""
    return copy_of_run(killed, tmp_path)


@pytest.fixture(autouse=True)
def _seeded_and_restored() -> Iterator[None]:
    """Every test starts from one seed and leaves torch's settings as they were."""
    threads, random_state = torch.get_num_threads(), torch.get_rng_state()
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)
    torch.set_rng_state(random_state)


@pytest.fixture(autouse=True)
def _no_draw_without_a_seed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fails a test that draws from a generator of the whole process or from one without a seed.

    Torch's own is seeded above; `test_house.py` looks for the draws that cannot be seen here.
    """
    default_rng = np.random.default_rng

    def seeded_rng(seed: Any = None) -> np.random.Generator:
        # SciPy draws examples for its documentation when it is imported.
        caller = sys._getframe(1).f_globals["__name__"]
        assert seed is not None or caller.startswith("scipy."), "default_rng() without a seed"
        return default_rng(seed)

    def sampler_state(self: LazyRandomState, seed: int | None = None) -> None:
        self._rng = None if seed is None else np.random.RandomState(seed)

    def unseeded(self: LazyRandomState) -> None:
        raise AssertionError("a sampler of Optuna without a seed draws")

    monkeypatch.setattr(np.random, "default_rng", seeded_rng)
    monkeypatch.setattr(LazyRandomState, "__init__", sampler_state)
    monkeypatch.setattr(LazyRandomState, "_set_rng", unseeded)
    before = random.getstate(), np.random.get_state()[1:3]
    yield
    assert random.getstate() == before[0], "drew from the module random: take a random.Random(seed)"
    words, place = np.random.get_state()[1:3]
    drawn = place != before[1][1] or not np.array_equal(words, before[1][0])
    assert not drawn, "drew from numpy.random: take a default_rng(seed)"


@pytest.fixture(autouse=True)
def _without_what_takes_long(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leaves out what most tests of whole phases do not look at, but where a mark asks for it."""
    # No figure that is there on a quiet machine only.
    monkeypatch.setattr("nas.costs.latency.MOST_SPREAD", 1.0)
    if "figures" not in request.keywords:
        monkeypatch.setattr("report.searches.write_search_figures", lambda folder: [])
        monkeypatch.setattr("report.page.write_report", lambda folder: folder / "report.html")


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name a long text by its length: names of tests go to and from every process of xdist."""
    if isinstance(val, str | bytes) and len(val) > LONGEST_ID:
        return f"{len(val)} {'bytes' if isinstance(val, bytes) else 'characters'}"
    return None


def pytest_configure(config: pytest.Config) -> None:
    """Keep temporary folders in memory where there is room: most of what tests write is synced."""
    usable = os.access(_MEMORY, os.W_OK | os.X_OK)
    if usable and shutil.disk_usage(_MEMORY).free >= _MEMORY_NEEDED_BYTES:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))
