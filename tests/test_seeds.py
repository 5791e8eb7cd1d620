"""Several searches by one command: each is what it would be alone."""

from pathlib import Path
from typing import Any

import pytest

import derive
import search
from model import load_architecture
from pipeline.summary import agreement_caveats
from tests.runs import SEARCH, assert_same, code_of, refused, run, settings

SHORT = settings("search.steps=10", "run.validate_every=5")


@pytest.mark.parametrize(
    ("workers", "line"),
    [
        ("1", "search 1 of 2, seed 2"),
        pytest.param("2", "[2/2] trained search, seed", marks=pytest.mark.slow),
    ],
)
def test_each_search_is_the_one_that_runs_alone(
    experiment_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    workers: str,
    line: str,
) -> None:
    together, alone = tmp_path / "together", tmp_path / "alone"
    given = ("--seeds", "2,0", "--workers", workers)
    run(search, experiment_file, "--run", together, *given, *SHORT)
    said = capsys.readouterr().out
    assert line in said
    assert "agreement of 2 searches: " in said
    assert said.rstrip().endswith("--seeds 2,0")
    # Seed 0 came second, in a process that had trained already.
    run(search, experiment_file, "--run", alone, *SHORT)
    one, other = (folder / SEARCH for folder in (together, alone))
    assert_same(one, other)
    for name in ("experiment.yaml", "identity.json"):
        assert (one / name).read_bytes() == (other / name).read_bytes()
    run(derive, together, "--seeds", "0,2")
    evidence = load_architecture(together / "architecture.json").evidence
    said = capsys.readouterr().out
    assert agreement_caveats(evidence.agreement)[0] in said
    assert evidence.gap is not None


def test_the_same_command_adds_what_is_missing(experiment_file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run(search, experiment_file, "--run", folder, *SHORT)
    before = (folder / "search/seed-0/last.safetensors").stat().st_mtime_ns
    run(search, experiment_file, "--run", folder, "--seeds", "0,1", *SHORT)
    assert (folder / "search/seed-0/last.safetensors").stat().st_mtime_ns == before
    assert (folder / "search/seed-1/pi.csv").exists()


def test_a_later_folder_of_another_experiment_is_refused_before_the_first_step(
    experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    other = settings("search.steps=11", "run.seed=5")
    run(search, experiment_file, "--run", folder, *other)
    arguments = [experiment_file, "--run", folder, "--seeds", "0,5", *SHORT]
    assert "seed-5" in refused(search, capsys, *arguments)
    assert not (folder / "search/seed-0").exists()


def test_a_search_that_diverges_ends_the_command_with_its_code(
    experiment_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from training.signals import Diverged

    folder, begun = tmp_path / "run", list[int]()

    def diverging(*step_state_batch: Any) -> None:
        begun.append(1)
        raise Diverged("loss: nan")

    monkeypatch.setattr("nas.search.step.SearchStep.__call__", diverging)
    arguments = [experiment_file, "--run", folder, "--seeds", "0,1", *SHORT]
    assert code_of(search, *arguments) == 3
    assert begun == [1]


@pytest.mark.parametrize("seeds", ["", "0,", "0,0", "0 1", "a", "-1", "0,1.5", "4294967296"])
def test_seeds_that_are_none_are_refused_in_one_line(
    seeds: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = refused(search, capsys, "x.yaml", f"--seeds={seeds}")
    assert "argument --seeds: expected different seeds like 0,1,2" in line
