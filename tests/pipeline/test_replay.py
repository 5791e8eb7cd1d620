"""Replays: what is expected of this machine, first differences by name, and whose a folder is."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from data import prepare
from pipeline.experiment import load_experiment
from pipeline.replay import FILES, begin, differences, expectations, in_order
from pipeline.run_archive import Manifest, unpack, write_archive
from tests.conftest import write_experiment
from tests.packs import CHOSEN, FACTS, made_up_run, write_json
from tests.runs import Capture, code_of
from tools import replay
from training.run_dir import environment


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("replayed")
    made_up_run(folder / "run", write_experiment(folder))
    write_archive(folder / "run", folder / "run.zip", weights=False)
    unpack(folder / "run.zip", folder / "unpacked")
    return folder


@pytest.fixture
def manifest(original: Path) -> Manifest:
    return Manifest.model_validate_json((original / "unpacked/manifest.json").read_bytes())


@pytest.fixture
def remade(original: Path, tmp_path: Path) -> Path:
    """A run that came out equal, but for its times and its program."""
    folder = shutil.copytree(original / "run", tmp_path / "run")
    shutil.copytree(original / "unpacked", folder / FILES)
    for path in folder.glob("*.json*"):
        path.write_text(path.read_text().replace('"latency_ms": 3.0', '"latency_ms": 4.0'))
    for path in folder.rglob("*.json*"):
        if FILES not in path.relative_to(folder).parts:
            text = path.read_text().replace('"elapsed_s": ', '"elapsed_s": 9')
            path.write_text(text.replace("c0ffee", "beef").replace("3.5", "4.5"))
    rows = (folder / "comparison.csv").read_text().replace("3.0,latency", "4.0,")
    (folder / "comparison.csv").write_text(rows)
    return folder


def test_times_and_the_program_are_no_difference(manifest: Manifest, remade: Path) -> None:
    found, seen = differences(manifest, remade)
    assert found == []
    assert seen > 20


def edit(name: str, old: str, new: str) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        text = (run / name).read_text()
        assert old in text
        (run / name).write_text(text.replace(old, new, 1))

    return change


def change_pi(run: Path) -> None:
    path = run / "search/seed-1/pi.npz"
    with np.load(path) as saved:
        arrays = dict(saved)
    arrays["pi"][2, 1, 1] += 0.25
    np.savez_compressed(path, **arrays)


def change_weights(run: Path) -> None:
    save_file({"a": torch.tensor([0.0, -0.0])}, run / WEIGHTS)


METRICS, RESULT = "search/seed-0/metrics.jsonl", f"retrain/{CHOSEN}/seed-0/result.json"
WEIGHTS = f"retrain/{CHOSEN}/seed-0/model/model.safetensors"
CHANGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "metrics": (
        edit(METRICS, '"lr": 0.1', '"lr": 0.2'),
        f"{METRICS}: row 1.lr: 0.1 there, 0.2 here",
    ),
    "a column more": (
        edit(METRICS, '"lr": 0.1', '"lr": 0.1, "new": 1'),
        f"{METRICS}: row 1.new: nothing there, 1 here",
    ),
    "a row less": (
        lambda run: (run / METRICS).write_text((run / METRICS).read_text().splitlines()[0] + "\n"),
        f'{METRICS}: row 2.kind: "valid" there, nothing here',
    ),
    "pi": (change_pi, "search/seed-1/pi.npz: its bytes are others"),
    "table": (
        edit("search/seed-0/pi.csv", "1,1,0.5", "1,1,0.75"),
        'search/seed-0/pi.csv: row 2.pi: "0.5" there, "0.75" here',
    ),
    "result": (
        edit(RESULT, '"best_step": 5', '"best_step": 5.0'),
        f"{RESULT}: best_step: 5 there, 5.0 here",
    ),
    "layout": (
        edit("architecture.json", '"dense"', '"attention"'),
        'architecture.json: slots[2].kind: "dense" there, "attention" here',
    ),
    "comparison": (
        edit("comparison.csv", "interleaved,1.5", "interleaved,1.6"),
        'comparison.csv: row 2.nats_per_token: "1.5" there, "1.6" here',
    ),
    "a file": (lambda run: (run / RESULT).unlink(), f"{RESULT}: is missing here"),
    "weights": (change_weights, f"{WEIGHTS}: its bytes are others"),
}  # fmt: skip


@pytest.mark.parametrize("kind", CHANGES)
def test_what_differs_is_named_by_its_first_place(
    manifest: Manifest, remade: Path, kind: str
) -> None:
    change, line = CHANGES[kind]
    change(remade)
    assert differences(manifest, remade)[0] == [line]


def test_the_first_file_is_the_one_that_a_run_writes_first(
    manifest: Manifest, remade: Path
) -> None:
    for kind in ("comparison", "layout", "result", "pi", "metrics"):
        CHANGES[kind][0](remade)
    files = [line.partition(":")[0] for line in differences(manifest, remade)[0]]
    wanted = [METRICS, "search/seed-1/pi.npz", "architecture.json", RESULT, "comparison.csv"]
    assert files == wanted
    names = [f"search/seed-{seed}/pi.npz" for seed in (10, 2)]
    others = ["train.log", "search/seed-2/environment.json", "search/seed-2/last.safetensors"]
    assert in_order([*names, *others]) == names[::-1]


# --- before a replay ------------------------------------------------------------------------------


@pytest.fixture
def inputs(original: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The hashes of the made-up run's text, and no commit that other work changes meanwhile."""
    monkeypatch.setenv("PARNAS_CACHE", str(original / "cache"))
    monkeypatch.setattr("training.run_dir.commit", lambda: "abc")
    data = load_experiment(original / "tiny.yaml").data
    text = prepare(data, Path.cwd(), progress=print, is_run=lambda folder: False)
    return {"corpus": text.corpus_digest, "tokenizer": text.tokenizer.digest}


def expected_of(
    original: Path, folder: Path, inputs: dict[str, str], facts: dict[str, Any], *sets: str
) -> list[str]:
    """What a replay of the made-up run says, had it been made on this machine but for `facts`."""
    files = shutil.copytree(original / "unpacked", folder / "files")
    here = json.loads(environment(torch.device("cpu"), {})) | {"threads": 1}
    for path in files.rglob("environment.json"):
        write_json(path, here | facts)
    for path in files.rglob("identity.json"):
        write_json(path, inputs)
    return expectations(files, sets)


def test_nothing_is_said_where_nothing_differs(
    original: Path, tmp_path: Path, inputs: dict[str, str]
) -> None:
    assert expected_of(original, tmp_path, inputs, {}) == []


def test_what_differs_here_is_said_beforehand(
    original: Path, tmp_path: Path, inputs: dict[str, str]
) -> None:
    facts: dict[str, Any] = {"torch": "1.0", "commit": "abc-changed", "threads": 512}
    facts["resumed"] = [{"step": 7, "threads": 1}, {"step": 9, "torch": "1.0"}]
    (tmp_path / "train.txt").write_text((original / "train.txt").read_text()[1:])
    texts = f"data.files.train={tmp_path / 'train.txt'}"
    lines = expected_of(original, tmp_path, inputs, facts, texts, "retrain.steps=9")
    assert lines[0] == "commit was abc-changed, is abc"
    assert lines[1].startswith("torch was 1.0, is 2.")
    assert lines[2].startswith("threads were 512, and there are ")
    assert lines[3].startswith(f"corpus hash was {inputs['corpus'][:12]}, is ")
    assert lines[4].endswith(": from step 7 on threads was 1")
    assert lines[-1] == "--set retrain.steps=9: is another experiment"
    assert not any("data.files" in line or "step 9 " in line for line in lines)


def test_a_replay_needs_anyway_where_something_differs_and_check_runs_nothing(
    original: Path, tmp_path: Path, inputs: dict[str, str], capsys: Capture
) -> None:
    arguments = [original / "run.zip", "--run", tmp_path / "new"]
    capsys.readouterr()
    assert code_of(replay, *arguments, "--check") == 0
    out = capsys.readouterr().out
    assert f"differs: torch was {FACTS['torch']}, is " in out
    assert "python search.py run/search/seed-0/experiment.yaml --run " in out
    assert code_of(replay, *arguments) == 2
    assert "--anyway makes the run all the same" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_what_an_archive_names_steers_no_terminal(
    original: Path, tmp_path: Path, inputs: dict[str, str], capsys: Capture
) -> None:
    run = shutil.copytree(original / "run", tmp_path / "x\x1b[31mred")
    write_archive(run, tmp_path / "red.zip", weights=False)
    capsys.readouterr()
    assert code_of(replay, tmp_path / "red.zip", "--check") == 0
    out = capsys.readouterr().out
    assert "red-replay" in out
    assert "\x1b" not in out


def test_a_replay_takes_an_empty_folder_and_goes_on_in_its_own_alone(
    original: Path, tmp_path: Path, manifest: Manifest
) -> None:
    archive = original / "run.zip"
    begin(archive, manifest, tmp_path / "new")
    begin(archive, manifest, tmp_path / "new")
    saved = tmp_path / "new" / FILES / "comparison.yaml"
    assert saved.read_bytes() == (original / "run/comparison.yaml").read_bytes()
    other = manifest.model_copy(update={"name": "other"})
    with pytest.raises(ValueError, match="a replay of another archive"):
        begin(archive, other, tmp_path / "new")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/x").touch()
    with pytest.raises(ValueError, match="is not empty"):
        begin(archive, manifest, tmp_path / "mine")
