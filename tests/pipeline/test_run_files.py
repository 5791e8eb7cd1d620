"""A run folder is known by what every command writes there first."""

import json
import shutil
from pathlib import Path

import pytest

import compare
import derive
import retrain
import search
from pipeline.cli import is_run_folder
from pipeline.run_files import record_command
from tests.pipeline.conftest import PlanWith
from tests.runs import settings
from utils.files import read_rows


def touched(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


@pytest.mark.parametrize(
    "written",
    [
        ["search/seed-3/experiment.yaml"],
        ["retrain/argmax-0/seed-0/experiment.yaml"],
        ["architectures/experiment.yaml"],
        ["sweep/experiment.yaml"],
        ["sweep/study.db"],
        ["one/seed-100/job.log"],
    ],
)
def test_what_a_command_writes_first_makes_a_run_folder(tmp_path: Path, written: list[str]) -> None:
    for number, name in enumerate(written, 1):
        touched(tmp_path / "r" / name)
        assert is_run_folder(tmp_path / "r") == (number == len(written))
    assert not is_run_folder(tmp_path)


def test_a_job_of_several_is_one_before_it_begins_and_the_users_folders_are_none(
    tmp_path: Path,
) -> None:
    touched(tmp_path / "one/seed-0/experiment.yaml", tmp_path / "locales/en/confirm.json")
    touched(tmp_path / "notes/experiment.yaml", tmp_path / "search/results/experiment.yaml")
    runs = [path for path in tmp_path.rglob("*") if path.is_dir() and is_run_folder(path)]
    assert runs == [tmp_path / "one/seed-0"]


def test_every_phase_in_a_tree_that_holds_the_runs_reads_one_text(
    experiment_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with the cache there, and with every file that a run writes among the wanted ones."""
    monkeypatch.chdir(tmp_path)
    notes = tmp_path / "notes"
    lines = (tmp_path / "train.txt").read_text().splitlines(keepends=True)
    for number in range(150):
        touched(notes / f"{number}.txt")
        (notes / f"{number}.txt").write_text("".join(lines[number::150]))
    shutil.move(tmp_path / "tiny.yaml", notes / "tiny.yaml")
    monkeypatch.chdir(notes)
    monkeypatch.setenv("PARNAS_CACHE", str(notes / "cache"))
    options = settings(
        "data={corpus: tree, tree: {folder: ., include: ['**/*']}, tokenizer: {kind: bytes},"
        " batch: 2, segment: 8, evaluation_streams: 1}",
        "search.steps=4", "search.optimiser.warmup_steps=1", "run.validate_every=4",
        "retrain.steps=3", "retrain.optimiser.warmup_steps=1", "compare.baselines=[interleaved]",
    )  # fmt: skip
    assert search.main(["tiny.yaml", *options]) == 0
    for script in (derive, retrain, compare):
        assert script.main(["runs/tiny"]) == 0
    hashes = {
        json.loads(path.read_text())["corpus"] for path in notes.glob("runs/**/identity.json")
    }
    assert len(hashes) == 1


def test_a_command_stands_whole_behind_one_that_a_full_disk_tore(plan_with: PlanWith) -> None:
    plan = plan_with()
    plan.run_dir.mkdir(exist_ok=True)
    record_command(plan.run_dir, plan.experiment)
    path = plan.run_dir / "commands.jsonl"
    first = path.read_text()
    path.write_text(first.replace('"seed": 0', '"seed": 1') + first[:40])
    record_command(plan.run_dir, plan.experiment)
    assert [row["experiment"]["run"]["seed"] for row in read_rows(path)] == [1, 0]


def test_a_command_that_is_given_again_after_another_stands_there_again(
    plan_with: PlanWith,
) -> None:
    """Or the list would not reproduce the run: what is chosen and trained in between differs."""
    plans = [plan_with(), plan_with("run.seed=1")]
    for number in (0, 0, 1, 0):
        plans[number].run_dir.mkdir(exist_ok=True)
        record_command(plans[0].run_dir, plans[number].experiment)
    rows = read_rows(plans[0].run_dir / "commands.jsonl")
    assert [row["experiment"]["run"]["seed"] for row in rows] == [0, 1, 0]
