"""Derivations: names and files of architectures; a search serves its own text alone."""

import json
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import compare
import derive
import retrain
import search
from model import load_architecture
from pipeline.architectures import architecture_hash
from pipeline.derive import derive as derive_by
from tests.pipeline.conftest import PlanWith
from tests.refusal import refused
from tests.runs import state_of
from tests.test_pipeline import run


def test_tied_and_untied_are_two_architectures(plan_with: PlanWith) -> None:
    plans = (plan_with(), plan_with("model.tie_blocks=2"))
    one, two = (derive_by(plan, method="interleaved") for plan in plans)
    assert one.blocks == two.blocks
    assert architecture_hash(one) != architecture_hash(two)


@pytest.mark.parametrize("shift", [False, True])
def test_a_request_says_whether_the_model_has_token_shift(plan_with: PlanWith, shift: bool) -> None:
    plan = plan_with(f"model.token_shift={str(shift).lower()}")
    assert plan.request(plan.experiment.derive, []).token_shift is shift


def test_a_name_is_never_taken_over_by_other_sizes(derived: Path) -> None:
    run(retrain, derived, "--layout", "interleaved")
    path = derived / "architectures/interleaved.json"
    before = path.read_bytes()
    wider = ["--layout", "interleaved", "--set", "model.d_ffn=48"]
    run(retrain, derived, *wider)
    assert path.read_bytes() == before
    assert len(list((derived / "retrain").glob("interleaved-*"))) == 1


def another_text(run: Path) -> tuple[Any, ...]:
    """The arguments of a command in a run whose training text has got a line more."""
    train = (run.parent / "train.txt").read_text(encoding="utf-8")
    path = run.parent / "other.txt"
    path.write_text(f"{train}kan sel.\n", encoding="utf-8")
    return (run, "--set", f"data.files.train={path}")


@pytest.mark.parametrize(
    ("main", "arguments"),
    [
        (derive.main, ["--method", "argmax"]),
        (retrain.main, ["--layout", "argmax"]),
        (compare.main, ["--set", "compare.baselines=[argmax]"]),
    ],
)
def test_no_command_reads_a_search_of_another_text(
    searched: Path, main: Any, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    if main is not derive.main:
        assert derive.main([str(searched), "--method", "interleaved"]) == 0
    before = state_of(searched)
    line = refused(main, capsys, *another_text(searched), *arguments).splitlines()[-1]
    assert line.startswith(f"{searched / 'search/seed-0'}: was started with another text (its hash")
    assert line.endswith("or another --run directory")
    assert state_of(searched) == before


@pytest.mark.parametrize("method", ["argmax", "top_k", "trained"])
def test_no_method_reads_a_search_that_was_not_brought_to_its_end(
    searched: Path, capsys: pytest.CaptureFixture[str], method: str
) -> None:
    """Killed while a later seed searches: all steps are there, and no warnings of the search."""
    (searched / "search/seed-0/pi.csv").unlink()
    line = refused(derive.main, capsys, searched, "--method", method).splitlines()[-1]
    ended = "the search has not ended; start search.py again to finish it"
    assert line == f"{searched / 'search/seed-0'}: {ended}"


def test_a_search_has_ended_once_its_warnings_are_written(
    experiment_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr("pipeline.search.write_whole", Mock(side_effect=OSError(28, "no room")))
    refused(search, capsys, experiment_file, "--run", tmp_path / "run")
    assert not (tmp_path / "run/search/seed-0/pi.csv").exists()


def test_the_name_of_the_method_layout_is_no_layout(
    searched: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = refused(retrain.main, capsys, searched, "--layout", "layout").splitlines()[-1]
    assert line == "method layout takes derive.layout; give its letters, e.g. 'a d a d i d'"


def test_each_of_several_searches_is_looked_at(
    searched: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(searched / "search/seed-0", searched / "search/seed-1")
    assert derive.main([str(searched), "--seeds", "0,1"]) == 0
    path = searched / "search/seed-1/identity.json"
    identity = json.loads(path.read_text())
    identity["search"]["alpha"]["eps"] = 0.1
    path.write_text(json.dumps(identity))
    said = refused(derive.main, capsys, searched, "--seeds", "0,1")
    assert f"{path.parent}: holds another experiment (search.alpha.eps was 0.1, is" in said


def test_layouts_are_not_trained_beside_a_search_of_another_experiment(
    searched: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = searched / "search/seed-0"
    (folder / "pi.npz").unlink()
    before = state_of(searched)
    other = ("--method", "trained", "--set", "model.d_model=8")
    said = refused(derive.main, capsys, searched, *other)
    assert said.splitlines()[-1].startswith(f"{folder}: holds another experiment (model.d_model")
    assert state_of(searched) == before


@pytest.mark.parametrize("method", ["sandwich", "random"])
def test_a_rule_needs_no_search_and_takes_any_text(searched: Path, method: str) -> None:
    arguments = [*map(str, another_text(searched)), "--method", method, "--set", "derive.k=1"]
    assert derive.main(arguments) == 0
    assert load_architecture(searched / "architecture.json").letters()


def test_the_report_tells_of_the_layout_and_not_where_figures_are_off(
    searched, monkeypatch, capsys
):
    told = []
    monkeypatch.setattr("report.page.write_report", lambda run: told.append(run) or run / "page")
    arguments = [str(searched), "--method", "interleaved"]
    assert derive.main([*arguments, "--set", "run.figures=false"]) == 0
    assert told == []
    assert derive.main(arguments) == 0
    assert told == [searched]
    assert capsys.readouterr().out.splitlines()[-2] == f"report: {searched / 'page'}"
