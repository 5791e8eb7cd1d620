"""Faults of files: a run goes on exactly, or says in one line what is wrong."""

import json
import os
import shutil
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

import retrain
import search
from tests.disk import Killed
from tests.runs import (
    LAYOUT,
    RETRAIN,
    SEARCH,
    Capture,
    assert_same,
    code_of as code_of,  # tests of packages take it from here
    killed_after,
    load_result,
    refused,
    run,
    settings,
    state_of,
)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size * 2 // 3)


def lost(path: Path) -> None:
    path.unlink()


def test_a_broken_checkpoint_is_one_line_and_nothing_is_changed(
    experiment_file: Path, half_way: Path, capsys: Capture
) -> None:
    cut(half_way / SEARCH / "last.safetensors")
    before = state_of(half_way)
    line = refused(search, capsys, experiment_file, "--run", half_way)
    assert "last.safetensors: not a checkpoint" in line
    assert state_of(half_way) == before


def test_a_lost_trajectory_is_one_line_and_nothing_is_changed(
    experiment_file: Path, tmp_path: Path, capsys: Capture
) -> None:
    place = tmp_path / "run" / SEARCH
    # Until alpha moves, all runs' trajectories are alike.
    arguments = [experiment_file, "--run", tmp_path / "run"]
    arguments += settings("search.alpha.warmup_fraction=0.25")
    killed_after(25, search, *arguments)
    run(search, *arguments, *settings("run.seed=1"))

    def of_another_run(path: Path) -> None:
        shutil.copy(place.parent / "seed-1/pi.npz", path)

    whole = (place / "pi.npz").read_bytes()
    for damage, said in (
        (of_another_run, "is of another run; put the right one back, or remove"),
        (lost, "not found; run search.py first, or take what was searched: seed-1; if the file"),
    ):
        (place / "pi.npz").write_bytes(whole)
        damage(place / "pi.npz")
        before = state_of(place)
        line = refused(search, capsys, *arguments)
        assert f"pi.npz: {said}" in line
        assert state_of(place) == before


def test_the_weights_of_the_last_step_serve_where_they_are_the_best(
    experiment_file: Path, undisturbed: Path, half_way: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = half_way / RETRAIN
    shutil.rmtree(place)
    with monkeypatch.context() as patch:
        patch.setattr("pipeline.retrain.finish_retrain", Mock(side_effect=Killed))
        with pytest.raises(Killed):
            run(retrain, experiment_file, "--run", half_way, *LAYOUT)
    (place / "best-25.safetensors").unlink()
    run(retrain, experiment_file, "--run", half_way, *LAYOUT)
    for name in ("result.json", "model/model.safetensors"):
        assert (place / name).exists()
    assert load_result(place / "result.json") == load_result(undisturbed / RETRAIN / "result.json")


def test_a_torn_last_line_of_the_metrics_is_cut(
    experiment_file: Path, undisturbed: Path, half_way: Path
) -> None:
    path = half_way / SEARCH / "metrics.jsonl"
    path.write_text(path.read_text() + '{"kind": "tr')
    run(search, experiment_file, "--run", half_way)
    assert_same(undisturbed / SEARCH, half_way / SEARCH)


def test_a_retraining_whose_metrics_are_lost_counts_its_validations_all_the_same(
    experiment_file: Path, undisturbed: Path, half_way: Path
) -> None:
    """Comparisons refuse a best step that was chosen among more or fewer."""
    (half_way / RETRAIN / "metrics.jsonl").unlink()
    run(retrain, experiment_file, "--run", half_way, *LAYOUT)
    counts = [
        json.loads((folder / RETRAIN / "result.json").read_text())["validations"]
        for folder in (undisturbed, half_way)
    ]
    assert counts[0] == counts[1] > 1


def test_law_8_a_run_goes_on_in_another_place(
    experiment_file: Path,
    undisturbed: Path,
    half_way: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    elsewhere = tmp_path / "another machine"
    (elsewhere / "texts").mkdir(parents=True)
    shutil.move(half_way, elsewhere / "run")
    for name in ("train", "valid", "test"):
        shutil.move(tmp_path / f"{name}.txt", elsewhere / "texts")
    shutil.rmtree(tmp_path / "cache")
    experiment_file.unlink()
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("PARNAS_CACHE", "own cache")
    texts = settings(*(f"data.files.{n}=texts/{n}.txt" for n in ("train", "valid", "test")))
    run(search, "run", *texts)
    run(retrain, "run", *texts, *LAYOUT)
    for phase in (SEARCH, RETRAIN):
        assert_same(undisturbed / phase, elsewhere / "run" / phase)
    assert [path.name for path in (elsewhere / "own cache").iterdir()]


def test_another_text_is_called_another_text(
    experiment_file: Path, half_way: Path, tmp_path: Path, capsys: Capture
) -> None:
    text = tmp_path / "train.txt"
    text.write_text(text.read_text() + "kan sel.\n")
    line = refused(search, capsys, experiment_file, "--run", half_way)
    assert "was started with another text" in line
    assert f"here {sys.version.split()[0]}" in line


def test_names_of_any_kind_work(
    experiment_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "läufe 漢字 🙂 'quoted' \"twice\" a:b,c=d"
    home = tmp_path / name
    home.mkdir()
    text = experiment_file.read_text()
    for split in ("train", "valid", "test"):
        moved = shutil.move(tmp_path / f"{split}.txt", home / f"{split} {name}.txt")
        spelled = json.dumps(str(moved), ensure_ascii=False)
        text = text.replace(f"{tmp_path.as_posix()}/{split}.txt", spelled)
    (home / f"{name}.yaml").write_text(text, encoding="utf-8")
    monkeypatch.setenv("PARNAS_CACHE", str(home / f"cache {name}"))
    monkeypatch.chdir(home)
    short = settings(*(f"{phase}.steps=6" for phase in ("search", "retrain")))
    short += settings(*(f"{phase}.optimiser.warmup_steps=1" for phase in ("search", "retrain")))
    run(search, f"./{name}.yaml", *short)
    run(retrain, f"./{name}.yaml", *short, *LAYOUT)
    run(search, f"runs/{name}")
    assert (home / "runs" / name / RETRAIN / "model/tokenizer.json").exists()
