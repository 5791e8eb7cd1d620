"""Replays: what is expected of this machine, first differences by name, and whose a folder is."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from data import prepare
from pipeline.experiment import load_experiment
from pipeline.pack_file import Pack, opened_pack
from pipeline.packing import write_pack
from pipeline.replaying import begin, differences, expectations, unpack
from pipeline.run_difference import first_difference, in_order, is_compared
from tests.conftest import write_experiment
from tests.packs import CHOSEN, FACTS, made_up_run, write_json
from tests.runs import Capture, code_of
from tools import replay
from training.run_dir import environment


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("replayed")
    made_up_run(folder / "run", write_experiment(folder))
    write_pack(folder / "run", folder / "run.zip", weights=False)
    write_pack(folder / "run", folder / "weights.zip", weights=True)
    return folder


@pytest.fixture
def remade(original: Path, tmp_path: Path) -> Path:
    """A run that came out equal, but for its times and its program."""
    folder = shutil.copytree(original / "run", tmp_path / "run")
    for path in folder.rglob("*.json*"):
        text = path.read_text().replace('"elapsed_s": ', '"elapsed_s": 9').replace("c0ffee", "beef")
        path.write_text(
            text.replace('"latency_ms": 3.0', '"latency_ms": 4.0').replace("3.5", "4.5")
        )
    rows = (folder / "comparison.csv").read_text().replace("3.0,latency", "4.0,")
    (folder / "comparison.csv").write_text(rows)
    shutil.rmtree(folder / "search/seed-0/tensorboard")
    (folder / "report.html").unlink()
    return folder


def found(original: Path, remade: Path, archive: str = "run.zip") -> list[str]:
    with opened_pack(original / archive) as opened:
        return [str(one) for one in differences(opened, remade)[0]]


def test_times_and_the_program_are_no_difference(original: Path, remade: Path) -> None:
    assert found(original, remade) == []
    with opened_pack(original / "run.zip") as opened:
        counts = differences(opened, remade)[1]
    assert counts == {"tables": 24, "pi.npz": 2, "weights": 5}


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


def pack_pi_otherwise(run: Path) -> None:
    path = run / "search/seed-1/pi.npz"
    with np.load(path) as saved:
        np.savez(path, **dict(saved))


def change_weights(run: Path) -> None:
    weights = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor([0.0, -0.0])}
    save_file(weights, run / "search/seed-0/last.safetensors")


METRICS, RESULT = "search/seed-0/metrics.jsonl", f"retrain/{CHOSEN}/seed-0/result.json"
CHANGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "metrics": (
        edit(METRICS, '"lr": 0.1', '"lr": 0.2'),
        f"{METRICS}: row 1 (train, step 5), column lr: 0.1 there, 0.2 here",
    ),
    "validation": (
        edit(METRICS, "2.25", "2.5"),
        f"{METRICS}: row 2 (valid soft, step 5), column nats_per_token: 2.25 there, 2.5 here",
    ),
    "a column more": (
        edit(METRICS, '"lr": 0.1', '"lr": 0.1, "new": 1'),
        f"{METRICS}: row 1 (train, step 5), column new: nothing there, 1 here",
    ),
    "other steps": (
        edit(METRICS, '"step": 5', '"step": 6'),
        f"{METRICS}: row 1: train, step 5 there, train, step 6 here",
    ),
    "a row less": (
        lambda run: (run / METRICS).write_text((run / METRICS).read_text().splitlines()[0] + "\n"),
        f"{METRICS}: number of rows: 2 there, 1 here",
    ),
    "a torn file": (
        lambda run: (run / METRICS).write_text("{"),
        f"{METRICS}: cannot be read (Expecting property name enclosed in double quotes: ",
    ),
    "pi": (
        change_pi,
        "search/seed-1/pi.npz: array pi, step 3, slot 1, candidate dense: 0.5 there, 0.75 here",
    ),
    "bytes of pi": (
        pack_pi_otherwise,
        "search/seed-1/pi.npz: the bytes of the file, but no array: ",
    ),
    "table": (
        edit("search/seed-0/pi.csv", "1,1,0.5", "1,1,0.75"),
        "search/seed-0/pi.csv: row 2 (1), column pi: 0.5 there, 0.75 here",
    ),
    "result": (
        edit(RESULT, '"best_step": 5', '"best_step": 5.0'),
        f"{RESULT}: best_step: 5 there, 5.0 here",
    ),
    "layout": (
        edit("architecture.json", '"dense"', '"attention"'),
        'architecture.json: slots[1].kind: dense there, attention here',
    ),
    "comparison": (
        edit("comparison.json", '"nats_per_token": 1.5', '"nats_per_token": 2.5'),
        "comparison.json: rows[0].nats_per_token: 1.5 there, 2.5 here",
    ),
    "equal": (
        edit("comparison.json", '"FLOPs latency"', '"training"'),
        "comparison.json: rows[0].equal: FLOPs there,  here",
    ),
    "table of the comparison": (
        edit("comparison.csv", "interleaved,1.5", "interleaved,1.6"),
        "comparison.csv: row 2 (interleaved), column nats_per_token: 1.5 there, 1.6 here",
    ),
    "a file": (
        lambda run: (run / RESULT).unlink(),
        f"{RESULT}: the file: is there, is not here",
    ),
    "weights": (
        change_weights,
        "search/seed-0/last.safetensors: tensor b: ",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", CHANGES)
def test_what_differs_is_named_by_its_first_place(original: Path, remade: Path, kind: str) -> None:
    change, line = CHANGES[kind]
    change(remade)
    (only,) = found(original, remade)
    assert only.startswith(line)


def test_with_weights_in_the_archive_the_numbers_are_shown(original: Path, remade: Path) -> None:
    change_weights(remade)
    (line,) = found(original, remade, "weights.zip")
    assert line.endswith("last.safetensors: tensor b, element 1: 0.0 there, -0.0 here")


def test_weights_of_another_type_are_another_tensor(original: Path, remade: Path) -> None:
    path = remade / "search/seed-0/last.safetensors"
    save_file({name: tensor.bfloat16() for name, tensor in load_file(path).items()}, path)
    (line,) = found(original, remade, "weights.zip")
    assert "last.safetensors: tensor a: " in line


def test_the_first_file_is_the_one_that_a_run_writes_first(original: Path, remade: Path) -> None:
    for kind in ("comparison", "layout", "result", "pi", "metrics"):
        CHANGES[kind][0](remade)
    files = [line.partition(":")[0] for line in found(original, remade)]
    assert files == [
        METRICS,
        "search/seed-1/pi.npz",
        "architecture.json",
        RESULT,
        "comparison.json",
    ]
    names = ["retrain/x/seed-10/pi.csv", "retrain/x/seed-10/metrics.jsonl", "search/seed-0/pi.npz"]
    assert [*in_order(names)] == [names[2], names[1], names[0]]


@pytest.mark.parametrize("damage", [b"", b"[1]", b"\xff", b"null", b"[" * 10**5, b"a,b\n1"])
@pytest.mark.parametrize("name", ["metrics.jsonl", "result.json", "pi.csv", "pi.npz"])
def test_files_of_strangers_make_a_line_and_no_traceback(name: str, damage: bytes) -> None:
    assert is_compared(name)
    for pair in ((damage, b"{}"), (b"{}", damage)):
        assert str(first_difference(name, *pair) or "equal").isprintable()


def test_what_is_no_result_is_not_compared() -> None:
    assert not any(map(is_compared, ("train.log", "environment.json", "opponents.json", "x.png")))


# --- before a replay ------------------------------------------------------------------------------


def here(**facts: Any) -> dict[str, Any]:
    """The facts of this machine, some of them changed."""
    return json.loads(environment(torch.device("cpu"), {})) | {"threads": 1, **facts}


def expected_of(original: Path, folder: Path, facts: dict[str, Any], *sets: str) -> list[str]:
    """What a replay of the made-up run says, had it been made on such a machine, by one phase."""
    run_folder = shutil.copytree(original / "run", folder / "other")
    for path in run_folder.rglob("environment.json"):
        write_json(path, facts)
    data = json.loads((original / "inputs.json").read_text())
    for path in run_folder.rglob("identity.json"):
        write_json(path, data)
    write_pack(run_folder, folder / "other.zip", weights=False)
    with opened_pack(folder / "other.zip") as opened:
        return expectations(opened, sets)


@pytest.fixture
def inputs(original: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The hashes of the made-up run's text, and no commit that other work changes meanwhile."""
    monkeypatch.setenv("PARNAS_CACHE", str(original / "cache"))
    monkeypatch.setattr("training.run_dir.commit", lambda: "abc")
    data = load_experiment(original / "tiny.yaml").data
    text = prepare(data, Path.cwd(), progress=print, is_run=lambda folder: False)
    known = {"corpus": text.corpus_digest, "tokenizer": text.tokenizer.digest}
    write_json(original / "inputs.json", known)
    return known


def test_nothing_is_said_where_nothing_differs(
    original: Path, tmp_path: Path, inputs: dict[str, str]
) -> None:
    assert expected_of(original, tmp_path, here()) == []


def test_what_differs_here_is_said_beforehand(
    original: Path, tmp_path: Path, inputs: dict[str, str]
) -> None:
    facts = here(torch="1.0", commit="abc-changed", threads=512)
    facts["resumed"] = [{"step": 7, "threads": 1}, {"step": 9, "torch": "1.0"}]
    (tmp_path / "train.txt").write_text((original / "train.txt").read_text()[1:])
    texts = f"data.files.train={tmp_path / 'train.txt'}"
    lines = expected_of(original, tmp_path, facts, texts, "retrain.steps=9")
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
    write_pack(run, tmp_path / "red.zip", weights=False)
    capsys.readouterr()
    assert code_of(replay, tmp_path / "red.zip", "--check") == 0
    out = capsys.readouterr().out
    assert "red-replay" in out
    assert "\x1b" not in out


def test_a_replay_takes_an_empty_folder_and_goes_on_in_its_own_alone(
    original: Path, tmp_path: Path
) -> None:
    def take(opened: Pack, folder: str, sets: Sequence[str] = (), seal: str = "s") -> None:
        begin(opened, tmp_path / folder, sets, seal)

    with opened_pack(original / "run.zip") as opened:
        take(opened, "new")
        take(opened, "new")
        saved = tmp_path / "new/replay/comparison.yaml"
        assert saved.read_bytes() == (original / "run/comparison.yaml").read_bytes()
        for other in ({"seal": "t"}, {"sets": ["run.seed=1"]}):
            with pytest.raises(ValueError, match="another archive or --set"):
                take(opened, "new", **other)
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine/x").touch()
        with pytest.raises(ValueError, match="is not empty"):
            take(opened, "mine")
        (tmp_path / "linked/replay").mkdir(parents=True)
        (tmp_path / "linked/replay/search").symlink_to(tmp_path / "mine")
        with pytest.raises(ValueError, match="lies elsewhere by a link"):
            unpack(opened, tmp_path / "linked/replay")
        assert [path.name for path in (tmp_path / "mine").iterdir()] == ["x"]
