"""Which draws the forecast of a search's memory tries."""

import shutil
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import torch

import retrain
import search
from nas.search.estimators import ESTIMATORS
from pipeline.context import set_up
from pipeline.experiment import load_experiment
from pipeline.resources import _draws, memory_notes, memory_shortage, search_memory
from pipeline.search import search_phase
from tests.refusal import refused
from training.distributed import Ranks
from training.memory import Forecast
from training.step import Forward

GB = 10**9
LARGE = Forecast(GB, GB, 2 * GB, 0, 26 * GB, GB)


@pytest.mark.parametrize(
    ("estimator", "computed"), [("single_path", 1), ("spos", 1), ("two_path", 2)]
)
def test_every_choice_of_what_is_computed_is_drawn_in_all_slots(
    estimator: str, computed: int
) -> None:
    alpha_LC, found = torch.zeros(2, 3), []
    for noise_LC in _draws(2, computed, 3):
        mix = ESTIMATORS[estimator](alpha_LC, noise_LC, 1.0)
        drawn = {tuple(k for k, _ in terms) for terms in mix}
        assert len(drawn) == 1
        found += drawn
    assert sorted(found) == sorted(permutations(range(3), computed))


def test_where_all_are_computed_one_draw_is_enough() -> None:
    assert len(list(_draws(2, 0, 3))) == 1


@pytest.mark.parametrize("estimator", ["single_path", "spos", "two_path"])
@pytest.mark.forecast
def test_the_greediest_candidate_counts_wherever_it_stands(
    experiment_file: Path, tmp_path: Path, estimator: str
) -> None:
    found = []
    for kinds in ("attention, dense, identity", "identity, dense, attention"):
        settings = [f"search.estimator={estimator}", f"model.candidates=[{kinds}]"]
        phase = search_phase(set_up(load_experiment(experiment_file, settings), tmp_path))
        step: Any = phase.step
        found.append(search_memory(step, phase.state, phase.batches.batch(0)).activations)
    assert found[0] == pytest.approx(found[1], rel=0.02)


def test_a_shortage_says_what_is_needed_what_there_is_and_the_remedies() -> None:
    forward = Forward(torch.device("cpu"), "float32", micro_batches=2)
    assert memory_shortage(LARGE, forward, LARGE.total, claimed=False) is None
    assert memory_shortage(LARGE, forward, 25 * GB, claimed=False) == (
        "about 31,000 MB of memory are needed, and cpu has 25,000 MB: set run.recompute=true, "
        "raise run.micro_batches (now 2), or lower data.batch"
    )
    both = Forward(torch.device("cpu"), "float32", recompute=True, ranks=Ranks(local_world=2))
    assert memory_shortage(LARGE, both, 12 * GB, claimed=False) == (
        "about 31,000 MB of memory are needed, and cpu has 12,000 MB for each process: "
        "raise run.micro_batches (now 1), or lower data.batch"
    )


@pytest.mark.parametrize(
    ("recompute", "remedies"),
    [
        (False, "25,000 MB: set run.recompute=true, or raise run.micro_batches (now 1)"),
        (True, "25,000 MB: raise run.micro_batches (now 1)"),
    ],
)
def test_a_folder_that_is_claimed_would_refuse_another_batch(
    recompute: bool, remedies: str
) -> None:
    forward = Forward(torch.device("cpu"), "float32", recompute=recompute)
    line = memory_shortage(LARGE, forward, 25 * GB, claimed=True)
    assert line is not None
    assert line.endswith(remedies)


def test_processes_of_one_machine_share_its_memory_and_those_with_gpus_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Two(Ranks):
        def first_words(self, text: str | None) -> str | None:
            return text

    monkeypatch.setattr("pipeline.resources.memory_bytes", lambda device: 40 * GB)
    for kind, refuses in (("cpu", True), ("cuda", False)):
        ranks = Two(world=2, local_world=2)
        forward = Forward(torch.device(kind), "float32", ranks=ranks)
        notes = memory_notes(LARGE, forward, tmp_path, ignore=False)
        assert (notes.refusal is not None) == refuses


@pytest.fixture
def _small_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.resources.memory_bytes", lambda device: 100_000)


SAID = "MB of memory are needed, and cpu has 0.1 MB: set run.recompute=true, raise "


@pytest.mark.forecast
@pytest.mark.usefixtures("_small_machine")
@pytest.mark.parametrize("script", [search, retrain])
def test_what_does_not_fit_is_refused_before_the_folder_is_claimed(
    experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], script: Any
) -> None:
    layout = ["--layout", "a d a d"] if script is retrain else []
    said = refused(script.main, capsys, experiment_file, "--run", tmp_path / "run", *layout)
    lines = [line for line in said.splitlines() if not line.startswith("files: ")]
    assert len(lines) == 1
    assert SAID in lines[0]
    assert ", or lower data.batch; " in lines[0]
    assert lines[0].endswith("; --set run.ignore_memory_forecast=true trains all the same")
    assert not list((tmp_path / "run").rglob("seed-0"))


@pytest.mark.forecast
@pytest.mark.usefixtures("_small_machine")
def test_a_phase_that_is_done_opens_on_a_small_machine_and_a_resume_is_refused(
    undisturbed: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PARNAS_CACHE", str(undisturbed.parent / "cache"))
    shutil.copytree(undisturbed, tmp_path / "run")
    arguments = [str(tmp_path / "run"), "--layout", "a d a d"]
    assert retrain.main(arguments) == 0
    folder = tmp_path / "run/retrain/layout-adad/seed-0"
    (folder / "last.safetensors").unlink()  # the one before has steps left
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    line = refused(retrain.main, capsys, *arguments)
    assert SAID.replace("true, raise", "true, or raise") in line
    assert "data.batch" not in line
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert retrain.main([*arguments, "--set", "run.ignore_memory_forecast=true"]) == 0
    said = capsys.readouterr().out
    assert "goes on from step 21 of 25" in said
