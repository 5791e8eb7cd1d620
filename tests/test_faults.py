"""Faults of files: a run goes on from what is whole, exactly, or says in one line what is wrong."""

import json
import os
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import derive
import retrain
import search
from tests.test_kill import assert_same, load_result
from tests.test_pipeline import Killed
from training.console import Screen

SEARCH, RETRAIN = "search/seed-0", "retrain/layout-adad/seed-0"
LAYOUT = ["--layout", "a d a d"]


def code_of(script: Any, *arguments: Any) -> int:
    try:
        return int(script.main([str(argument) for argument in arguments]))
    except SystemExit as stop:
        return int(stop.code or 0)


def run(script: Any, *arguments: Any) -> None:
    assert code_of(script, *arguments) == 0


def refused(script: Any, capsys: pytest.CaptureFixture[str], *arguments: Any) -> str:
    capsys.readouterr()
    assert code_of(script, *arguments) == 2
    error = capsys.readouterr().err
    assert "Traceback" not in error
    lines = [line for line in error.splitlines() if not line.startswith("files: ")]
    assert len(lines) == 1 or (lines[1:] and lines[0].endswith("Go on with:")), error
    return lines[0]


def killed_after(step: int, script: Any, *arguments: Any) -> None:
    """The loop dies in the middle of a later step."""

    def dying(self: Screen, at: int) -> None:
        if at > step:
            raise Killed

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Screen, "advance", dying)
        with pytest.raises(Killed):
            run(script, *arguments)


def assert_same_run(undisturbed: Path, run: Path, place: str) -> None:
    """Byte for byte, times excepted; nothing temporary is left."""
    one, two = undisturbed / place, run / place
    assert_same(one, two)
    names = ("pi.npz", "pi.csv") if place == SEARCH else ("model/model.safetensors",)
    for name in names:
        assert (one / name).read_bytes() == (two / name).read_bytes()
    if place == RETRAIN:
        assert load_result(one / "result.json") == load_result(two / "result.json")
    assert not [path for path in run.rglob(".*")]


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size * 2 // 3)


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-20] ^= 4
    path.write_bytes(content)


def foreign(path: Path) -> None:
    shutil.copy(next(path.parent.glob("best-*.safetensors")), path)


def lost(path: Path) -> None:
    path.unlink()


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("damage", [cut, flipped, foreign, lost, folder])
def test_law_8_a_search_with_a_damaged_last_checkpoint_ends_as_one_never_hurt(
    experiment_file: Path,
    undisturbed: Path,
    tmp_path: Path,
    damage: Callable[[Path], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    hurt = tmp_path / "hurt" / SEARCH
    killed_after(16, search, experiment_file, "--run", tmp_path / "hurt")
    damage(hurt / "last.safetensors")
    capsys.readouterr()
    run(search, experiment_file, "--run", tmp_path / "hurt")
    said = "goes on from step 7 of 30, the checkpoint before the last one (last.safetensors: "
    assert said in capsys.readouterr().out
    assert said in (hurt / "train.log").read_text()
    resumed = json.loads((hurt / "environment.json").read_text())["resumed"]
    assert [entry["step"] for entry in resumed] == [7]
    assert resumed[0]["refused"].startswith("last.safetensors: ")
    assert (hurt / "last.refused.safetensors").exists() == (damage is not lost)
    assert_same_run(undisturbed, tmp_path / "hurt", SEARCH)


@pytest.mark.parametrize("damage", [cut, flipped])
def test_law_8_a_retraining_with_a_damaged_last_checkpoint_ends_as_one_never_hurt(
    experiment_file: Path, undisturbed: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    killed_after(22, retrain, experiment_file, "--run", tmp_path / "hurt", *LAYOUT)
    damage(tmp_path / "hurt" / RETRAIN / "last.safetensors")
    run(retrain, experiment_file, "--run", tmp_path / "hurt", *LAYOUT)
    assert_same_run(undisturbed, tmp_path / "hurt", RETRAIN)


def test_a_whole_previous_checkpoint_survives_a_refused_last_one(
    experiment_file: Path, tmp_path: Path
) -> None:
    """Killed again before its next checkpoint, the run still has the one it went on from."""
    place = tmp_path / "run" / SEARCH
    killed_after(16, search, experiment_file, "--run", tmp_path / "run")
    before = (place / "previous.safetensors").read_bytes()
    cut(place / "last.safetensors")
    killed_after(9, search, experiment_file, "--run", tmp_path / "run")
    assert (place / "previous.safetensors").read_bytes() == before
    assert not (place / "last.safetensors").exists()
    run(search, experiment_file, "--run", tmp_path / "run")


def state_of(place: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in place.rglob("*")
        if path.is_file()
    }


def test_two_damaged_checkpoints_are_one_line_and_nothing_is_changed(
    experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "run" / SEARCH
    killed_after(16, search, experiment_file, "--run", tmp_path / "run")
    cut(place / "last.safetensors")
    flipped(place / "previous.safetensors")
    before = state_of(place)
    line = refused(search, capsys, experiment_file, "--run", tmp_path / "run")
    assert "last.safetensors: damaged" in line
    assert "previous.safetensors: damaged" in line
    assert "to start again from step 0" in line
    assert state_of(place) == before


def other_run(place: Path, experiment_file: Path) -> None:
    """The pi.npz of another seed."""
    options = ["run.seed=1", "search.alpha.freeze=0.25"]
    settings = [part for option in options for part in ("--set", option)]
    run(search, experiment_file, "--run", place.parents[1], *settings)
    shutil.copy(place.parent / "seed-1/pi.npz", place / "pi.npz")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda place, _: cut(place / "pi.npz"), "pi.npz: damaged"),
        (lambda place, _: (place / "pi.npz").write_bytes(b""), "pi.npz: damaged"),
        (lambda place, _: lost(place / "pi.npz"), "pi.npz: is lost"),
        (lambda place, _: folder(place / "pi.npz"), "pi.npz: is lost"),
        (other_run, "pi.npz: is of another run"),
    ],
)
def test_a_lost_trajectory_is_one_line_and_nothing_is_changed(
    experiment_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    damage: Callable[[Path, Path], Any],
    said: str,
) -> None:
    place = tmp_path / "run" / SEARCH
    early = ["--set", "search.alpha.freeze=0.25"]  # until alpha moves, all runs' are alike
    killed_after(25, search, experiment_file, "--run", tmp_path / "run", *early)
    damage(place, experiment_file)
    cut(place / "last.safetensors")
    before = state_of(place)
    line = refused(search, capsys, experiment_file, "--run", tmp_path / "run", *early)
    assert said in line
    assert "the checkpoint of step 14 relies on it: put the right pi.npz back" in line
    assert state_of(place) == before


def what_is_said(read: Callable[[Path], Any], path: Path) -> str | None:
    try:
        read(path)
    except ValueError as error:
        return str(error)
    return None


def test_random_damage_of_a_trajectory_never_ends_in_a_traceback(
    experiment_file: Path, tmp_path: Path
) -> None:
    from nas.search.trajectory import load_pi
    from report.run_files import read_trajectory

    run(search, experiment_file, "--run", tmp_path / "run")
    path = tmp_path / "run" / SEARCH / "pi.npz"
    whole = path.read_bytes()
    refusals = 0
    for seed in range(200):
        generator = random.Random(seed)
        content = bytearray(whole)
        for _ in range(1 + seed % 3):
            content[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
        path.write_bytes(content if seed % 4 else content[: generator.randrange(len(content))])
        for read in (load_pi, read_trajectory):
            said = what_is_said(read, path)
            assert said is None or "pi.npz: " in said
            refusals += said is not None
    assert refusals > 300


def test_best_weights_that_are_lost_are_one_line_that_says_how_to_go_on(
    experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # With such a rate no weight changes, so no later validation is better than the first.
    options = ["--run", tmp_path / "run", "--set", "retrain.optimiser.lr=1e-30", *LAYOUT]
    place = tmp_path / "run" / RETRAIN
    run(retrain, experiment_file, *options)
    best_step = json.loads((place / "result.json").read_text())["best_step"]
    assert best_step == 10
    (place / "result.json").unlink()
    best = place / "best-10.safetensors"
    content = best.read_bytes()
    for damage in (cut, flipped, lost, folder):
        damage(best)
        line = refused(retrain, capsys, experiment_file, *options)
        assert "best-10.safetensors: " in line
        assert f"the weights of the best step, {best_step}, are lost: put the file back" in line
        shutil.rmtree(best) if best.is_dir() else best.unlink(missing_ok=True)
        best.write_bytes(content)
    run(retrain, experiment_file, *options)


def test_best_weights_that_are_lost_half_way_are_said_at_once(
    experiment_file: Path, undisturbed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    killed_after(16, retrain, experiment_file, "--run", tmp_path / "hurt", *LAYOUT)
    hurt = tmp_path / "hurt" / RETRAIN
    flipped(hurt / "best-10.safetensors")
    capsys.readouterr()
    run(retrain, experiment_file, "--run", tmp_path / "hurt", *LAYOUT)
    assert "best-10.safetensors: damaged" in capsys.readouterr().out
    # A later step is better here, so nothing is lost.
    assert_same_run(undisturbed, tmp_path / "hurt", RETRAIN)


def test_the_weights_of_the_last_step_serve_where_they_are_the_best(
    experiment_file: Path, tmp_path: Path
) -> None:
    run(retrain, experiment_file, "--run", tmp_path / "run", *LAYOUT)
    place = tmp_path / "run" / RETRAIN
    before = load_result(place / "result.json")
    assert before["best_step"] == 25
    model = (place / "model/model.safetensors").read_bytes()
    (place / "result.json").unlink()
    (place / "best-25.safetensors").unlink()
    run(retrain, experiment_file, "--run", tmp_path / "run", *LAYOUT)
    assert load_result(place / "result.json") == before
    assert (place / "model/model.safetensors").read_bytes() == model


@pytest.mark.parametrize("content", [b"", b"nonsense", b"[]", b'{"resumed": 3}', b"\xff", None])
def test_a_lost_record_of_the_machine_stops_nothing(
    experiment_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    content: bytes | None,
) -> None:
    killed_after(16, search, experiment_file, "--run", tmp_path / "run")
    path = tmp_path / "run" / SEARCH / "environment.json"
    path.unlink() if content is None else path.write_bytes(content)
    run(search, experiment_file, "--run", tmp_path / "run")
    assert "torch was not recorded, is " in capsys.readouterr().out
    assert json.loads(path.read_text())["resumed"][0]["step"] == 14


@pytest.mark.parametrize(
    "name", ["metrics.jsonl", "train.log", "identity.json", "lock", "previous.safetensors"]
)
def test_a_folder_where_a_file_should_be_is_one_line(
    experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    killed_after(16, search, experiment_file, "--run", tmp_path / "run")
    folder(tmp_path / "run" / SEARCH / name)
    assert name in refused(search, capsys, experiment_file, "--run", tmp_path / "run")


def test_a_damaged_line_of_the_metrics_says_what_to_do_and_that_works(
    experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    killed_after(16, search, experiment_file, "--run", tmp_path / "run")
    path = tmp_path / "run" / SEARCH / "metrics.jsonl"
    path.write_text("garb{age\n" + path.read_text())
    line = refused(search, capsys, experiment_file, "--run", tmp_path / "run")
    assert "metrics.jsonl:1: damaged line; repair it, or delete the file" in line
    path.unlink()
    run(search, experiment_file, "--run", tmp_path / "run")


def test_a_derivation_from_a_lost_trajectory_does_not_send_in_a_circle(
    experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(search, experiment_file, "--run", tmp_path / "run")
    path = tmp_path / "run" / SEARCH / "pi.npz"
    for damage in (lambda: cut(path), path.unlink):
        damage()
        for script in (derive, search):
            line = refused(script, capsys, experiment_file, "--run", tmp_path / "run")
            assert "run search.py" not in line
            assert line.count("put the right pi.npz back, or remove") == 1


def test_a_damaged_result_is_one_line(
    experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(retrain, experiment_file, "--run", tmp_path / "run", *LAYOUT)
    path = tmp_path / "run" / RETRAIN / "result.json"
    before = load_result(path)
    for content in (b"", b"{}", b"[]", b"3", b"\xff"):
        path.write_bytes(content)
        line = refused(retrain, capsys, experiment_file, "--run", tmp_path / "run", *LAYOUT)
        assert "result.json: " in line
        assert "remove it and run retrain.py or compare.py again" in line
    path.unlink()
    run(retrain, experiment_file, "--run", tmp_path / "run", *LAYOUT)
    assert load_result(path) == before


def test_law_8_a_run_goes_on_in_another_place(
    experiment_file: Path, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "another machine"
    texts = [part for name in ("train", "valid", "test") for part in
             ("--set", f"data.files.{name}=texts/{name}.txt")]  # fmt: skip
    killed_after(16, search, experiment_file, "--run", tmp_path / "moved")
    killed_after(16, retrain, experiment_file, "--run", tmp_path / "moved", *LAYOUT)
    (elsewhere / "texts").mkdir(parents=True)
    shutil.move(tmp_path / "moved", elsewhere / "run")
    for name in ("train", "valid", "test"):
        shutil.move(tmp_path / f"{name}.txt", elsewhere / "texts")
    shutil.rmtree(tmp_path / "cache")
    experiment_file.unlink()
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("PARNAS_CACHE", "own cache")
    run(search, "run", *texts)
    run(retrain, "run", *texts, *LAYOUT)
    for place in (SEARCH, RETRAIN):
        assert_same_run(undisturbed, elsewhere / "run", place)
    assert [path.name for path in (elsewhere / "own cache").iterdir()]


def test_another_text_is_called_another_text(
    experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    killed_after(16, search, experiment_file, "--run", tmp_path / "run")
    text = tmp_path / "train.txt"
    text.write_text(text.read_text() + "kan sel.\n")
    line = refused(search, capsys, experiment_file, "--run", tmp_path / "run")
    assert "was begun with another text" in line
    assert f"here {sys.version.split()[0]}" in line


NAMES = ["läufe 漢字 🙂", "'quoted' \"twice\" a:b,c=d"]


@pytest.mark.parametrize("name", NAMES)
def test_names_of_any_kind_work(
    experiment_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    home = tmp_path / name
    home.mkdir()
    for split in ("train", "valid", "test"):
        shutil.move(tmp_path / f"{split}.txt", home / f"{split} {name}.txt")
    text = experiment_file.read_text()
    for split in ("train", "valid", "test"):
        old = f"{tmp_path.as_posix()}/{split}.txt"
        text = text.replace(
            f"{split}: {old}",
            f"{split}: {json.dumps(f'{home}/{split} {name}.txt', ensure_ascii=False)}",
        )
    (home / f"{name}.yaml").write_text(text, encoding="utf-8")
    monkeypatch.setenv("PARNAS_CACHE", str(home / f"cache {name}"))
    monkeypatch.chdir(home)
    short = ["--set", "search.steps=6", "--set", "retrain.steps=6"]
    short += [
        "--set",
        "search.optimiser.warmup_steps=1",
        "--set",
        "retrain.optimiser.warmup_steps=1",
    ]
    run(search, f"./{name}.yaml", *short)
    run(retrain, f"./{name}.yaml", *short, *LAYOUT)
    run(search, f"runs/{name}")
    assert (home / "runs" / name / RETRAIN / "model/tokenizer.json").exists()


@pytest.mark.parametrize("given", ["~nobody-of-this-name/train.txt", "no/such.txt", "a\\0b", "."])
def test_paths_that_lead_nowhere_are_one_line(
    experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], given: str
) -> None:
    setting = f'data.files.train="{given}"'
    arguments = [experiment_file, "--run", tmp_path / "run", "--set", setting]
    assert "data.files.train" in refused(search, capsys, *arguments)


def test_a_cache_that_is_no_folder_names_its_variable(
    experiment_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "taken").write_text("mine")
    for cache in (tmp_path / "taken", tmp_path / "taken/below", "~nobody-of-this-name/cache"):
        monkeypatch.setenv("PARNAS_CACHE", str(cache))
        line = refused(search, capsys, experiment_file, "--run", tmp_path / "run")
        assert "PARNAS_CACHE" in line
        assert str(cache) in line
    assert (tmp_path / "taken").read_text() == "mine"


def test_files_of_a_tree_that_are_no_text_are_named_with_the_byte(
    experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    for number in range(90):
        (notes / f"{number}.md").write_text(f"note {number}\n" * 60)
    for number in range(7):
        (notes / f"bad {number}.md").write_bytes(b"abc\xff")
    arguments = [
        "--set",
        "data.corpus=tree",
        "--set",
        f"data.tree={{folder: '{notes}', include: ['*']}}",
    ]
    arguments += ["--set", "data.files=null", "--set", "search.steps=4"]
    arguments += ["--set", "search.optimiser.warmup_steps=1"]
    arguments += ["--set", "model.softmax={cutoffs: [20, 60], factor: 2}"]
    run(search, experiment_file, "--run", tmp_path / "run", *arguments)
    error = capsys.readouterr().err
    assert f"data.tree: {notes}/bad 0.md: left out, is not UTF-8, byte 3 is 0x" in error
    assert "data.tree: 2 more files are no UTF-8" in error
