"""Runs packed: the commands that made them, hostile archives, and how a replay differs."""

import json
import shutil
import zipfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch

from data import prepare
from pipeline.experiment import dump_experiment, load_experiment
from tests.conftest import write_experiment
from tests.runs import Capture, code_of, refused, write_json
from tools import pack, replay
from tools.pack import FILES, write_archive
from tools.replay import arguments_of, differences, expectations, in_order, read_commands, unpack
from training.run_dir import environment

Members = dict[str, bytes]
FACTS = {"torch": "2.0", "processor": "p", "device": "cpu", "threads": 2, "commit": "c0ffee"}
CHOSEN, RIVAL = "argmax-0-1", "interleaved"


def write_phase(folder: Path, experiment_file: Path, seed: int, **files: str) -> None:
    """What a search and a training have alike, and files of one of them."""
    write_json(folder / "environment.json", FACTS)
    write_json(folder / "identity.json", {"corpus": "1" * 64, "tokenizer": "2" * 64})
    experiment = load_experiment(experiment_file, [f"run.seed={seed}"])
    (folder / "experiment.yaml").write_text(dump_experiment(experiment))
    (folder / "metrics.jsonl").write_text('{"step": 5, "lr": 0.1, "elapsed_s": 1.5}\n' * 2)
    (folder / "last.safetensors").write_text("weights")
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)


def write_training(run: Path, experiment_file: Path, name: str, seed: int) -> None:
    folder = run / "retrain" / name / f"seed-{seed}"
    result = {"name": name, "seed": seed, "best_step": 5, "elapsed_s": 3.0}
    write_phase(folder, experiment_file, seed, architecture_json='{"d_model": 8}')
    write_json(folder / "result.json", result)
    (folder / "model").mkdir()
    (folder / "model" / "model.safetensors").write_text("weights")


def write_commands(run: Path, experiment_file: Path) -> None:
    content = load_experiment(experiment_file).model_dump(mode="json", exclude={"sweep"})
    file = "retrain/layout-aa/seed-3/architecture.json"
    given: list[tuple[str, str, dict[str, str], int]] = [
        ("python search.py x.yaml --seeds 0,1", "search", {"--seeds": "0,1"}, 1),
        ("python derive.py r", "derive", {"--workers": "1"}, 1),
        ("python retrain.py r --architecture my.json", "retrain", {"--architecture": file}, 4),
        ("python compare.py r", "compare", {"--workers": "1"}, 1),
    ]
    rows = [
        {"command": typed, "verb": verb, "options": options, "threads": 2, "ranks": ranks}
        | {"experiment": content}
        for typed, verb, options, ranks in given
    ]
    (run / "commands.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def made_up_run(run: Path, experiment_file: Path) -> Path:
    """Searches of two seeds, a layout, two more trainings, and a comparison."""
    for seed in (0, 1):
        table = "step,block,pi\n1,0,0.5\n1,1,0.5\n"
        folder = run / "search" / f"seed-{seed}"
        write_phase(folder, experiment_file, seed, pi_npz="pi", pi_csv=table)
    for name in (CHOSEN, RIVAL):
        write_training(run, experiment_file, name, 0)
    write_training(run, experiment_file, "layout-aa", 3)
    (run / "architecture.json").write_text('{"kind": "dense", "commit": "c0ffee"}')
    rows = [
        {"name": name, "nats_per_token": 1.5, "latency_ms": 3.0, "equal": equal}
        for name, equal in ((CHOSEN, "FLOPs latency"), (RIVAL, ""))
    ]
    results = {name: [{"seed": 0, "elapsed_s": 2.0}] for name in (CHOSEN, RIVAL)}
    remarks = ["not trained under equal conditions: program c0ffee (x), 0c0ffee (the others)"]
    content = {"verdict": "none", "remarks": remarks, "rows": rows, "results": results}
    content["latency_interval_ms"] = {CHOSEN: [3.0, 3.5]}
    write_json(run / "comparison.json", content)
    table = f"name,nats_per_token,latency_ms,equal\n{CHOSEN},1.5,3.0,latency\n{RIVAL},1.5,,\n"
    (run / "comparison.csv").write_text(table)
    (run / "report.html").write_text("drawn")
    (run / "lock").write_text("")
    (run / "search/seed-0/tensorboard").mkdir()
    (run / "search/seed-0/tensorboard/events").write_text("x")
    write_commands(run, experiment_file)
    return run


def members_of(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packed")
    made_up_run(folder / "run", write_experiment(folder))
    write_archive(folder / "run", folder / "run.zip")
    unpack(folder / "run.zip", folder / "unpacked")
    return folder


@pytest.fixture
def made(original: Path, tmp_path: Path) -> Path:
    return shutil.copytree(original / "run", tmp_path / "run")


@pytest.fixture
def archive(original: Path, tmp_path: Path) -> Path:
    return shutil.copy(original / "run.zip", tmp_path / "run.zip")


def test_the_commands_run_again_with_their_threads_processes_and_files(original: Path) -> None:
    files, run = original / "unpacked", Path("r")
    commands = read_commands(files, json.loads((files / "manifest.json").read_text()))
    program = str(Path.cwd())
    lines = [
        " ".join(arguments_of(number, command, run, ["a=b"])).replace(f"{program}/", "")
        for number, command in enumerate(commands)
    ]
    assert lines == [
        "search.py r/replay/0.yaml --run r --set a=b --seeds=0,1",
        "derive.py r/replay/1.yaml --run r --set a=b --workers=1",
        "-m torch.distributed.run --standalone --nproc_per_node 4 -- retrain.py r/replay/2.yaml "
        "--run r --set a=b --architecture=r/replay/retrain/layout-aa/seed-3/architecture.json "
        "--set run.threads=2",
        "compare.py r/replay/3.yaml --run r --set a=b --workers=1",
    ]
    assert load_experiment(files / "0.yaml") == load_experiment(original / "tiny.yaml")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda run: (run / "search/seed-1/pi.csv").unlink(), "search/seed-1: not done"),
        (lambda run: (run / "retrain/layout-aa/seed-3/result.json").unlink(), "not done"),
        (lambda run: (run / "commands.jsonl").unlink(), "no command of search.py, "),
        (shutil.rmtree, "no run directory"),
    ],
)
def test_what_cannot_be_packed_is_said_in_one_line(
    made: Path, tmp_path: Path, capsys: Capture, spoil: Callable[[Path], Any], words: str
) -> None:
    spoil(made)
    assert words in refused(pack, capsys, made)
    assert not (tmp_path / "run.zip").exists()


def test_nothing_is_overwritten_and_an_archive_lies_outside_of_its_run(
    made: Path, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "mine.zip").write_text("precious")
    assert "exists already" in refused(pack, capsys, made, tmp_path / "mine.zip")
    assert (tmp_path / "mine.zip").read_text() == "precious"
    assert "put it elsewhere" in refused(pack, capsys, made, made / "search" / "x.zip")
    assert "No such file" in refused(pack, capsys, made, tmp_path / "absent" / "x.zip")


def test_the_same_run_gives_the_same_bytes_without_weights(
    made: Path, archive: Path, tmp_path: Path
) -> None:
    write_archive(made, tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == archive.read_bytes()
    names = members_of(archive)
    assert {"manifest.json", "run/search/seed-0/pi.npz"} < names.keys()
    assert not {".safetensors", ".html", ""} & {Path(name).suffix for name in names}
    assert not any("tensorboard" in name or name.endswith("lock") for name in names)


def with_manifest(change: Callable[[dict[str, Any]], Any]) -> Callable[[Members], None]:
    def changed(members: Members) -> None:
        manifest = json.loads(members["manifest.json"])
        change(manifest)
        members["manifest.json"] = json.dumps(manifest).encode()

    return changed


def with_command(number: int, **changes: Any) -> Callable[[Members], None]:
    def changed(members: Members) -> None:
        lines = members["run/commands.jsonl"].decode().splitlines()
        lines[number] = json.dumps(json.loads(lines[number]) | changes)
        content = "\n".join(lines).encode()
        members["run/commands.jsonl"] = content
        digest = sha256(content).hexdigest()
        with_manifest(lambda m: m.update({"commands.jsonl": digest}))(members)

    return changed


FILE = "search/seed-0/experiment.yaml"
HOSTILE: dict[str, tuple[Callable[[Members], Any], str]] = {
    "above": (with_manifest(lambda m: m.update({"../evil": "0"})), "unsafe name '../e"),
    "absolute": (with_manifest(lambda m: m.update({"/evil": "0"})), "unsafe name '/evil'"),
    "missing": (lambda m: m.pop(f"run/{FILE}"), f"no item named 'run/{FILE}'"),
    "no manifest": (lambda m: m.pop("manifest.json"), "not a complete archive of tools.pack"),
    "other content": (lambda m: m.update({f"run/{FILE}": b"x"}), f"'{FILE}' is not the file"),
    "verb": (with_command(0, verb="../evil"), "not a complete archive"),
    "other option": (with_command(0, options={"--run": "/home"}), "may not be run"),
    "number for text": (with_command(1, options={"--workers": 3}), "may not be run"),
    "file": (with_command(2, options={"--architecture": "/etc/passwd"}), "may not be run"),
    "too many": (with_command(2, ranks=10**6), "may not be run"),
}  # fmt: skip


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_archive_is_refused_in_one_line(
    archive: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    change, words = HOSTILE[kind]
    members = members_of(archive)
    change(members)
    bad = tmp_path / "bad.zip"
    with zipfile.ZipFile(bad, "w") as opened:
        for name, content in members.items():
            opened.writestr(name, content)
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    line = refused(replay, capsys, bad, "--force")
    assert line.startswith(f"{bad}: ")
    assert words in line
    assert sorted(tmp_path.rglob("*")) == before


@pytest.fixture
def manifest(original: Path) -> dict[str, str]:
    content: dict[str, str] = json.loads((original / "unpacked/manifest.json").read_text())
    return content


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


def test_times_and_the_program_are_no_difference(manifest: dict[str, str], remade: Path) -> None:
    found, seen = differences(manifest, remade)
    assert found == []
    assert seen > 20


def edit(name: str, old: str, new: str) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        text = (run / name).read_text()
        assert old in text
        (run / name).write_text(text.replace(old, new, 1))

    return change


METRICS, RESULT = "search/seed-0/metrics.jsonl", f"retrain/{CHOSEN}/seed-0/result.json"
PI, LAYOUT, TABLE = "search/seed-1/pi.npz", "architecture.json", "comparison.csv"
CHANGES: dict[str, Callable[[Path], Any]] = {
    METRICS: edit(METRICS, '"lr": 0.1', '"lr": 0.1, "new": 1'),
    PI: edit(PI, "pi", "pj"),
    LAYOUT: edit(LAYOUT, '"dense"', '"attention"'),
    RESULT: edit(RESULT, '"best_step": 5', '"best_step": 6'),
    TABLE: edit(TABLE, "interleaved,1.5", "interleaved,1.6"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_differs_is_named(manifest: dict[str, str], remade: Path, name: str) -> None:
    CHANGES[name](remade)
    assert differences(manifest, remade)[0] == [name]
    (remade / RESULT).unlink()
    assert f"{RESULT}: is missing here" in differences(manifest, remade)[0]


def test_the_first_file_is_the_one_that_a_run_writes_first(
    manifest: dict[str, str], remade: Path
) -> None:
    for name in reversed(CHANGES):
        CHANGES[name](remade)
    assert differences(manifest, remade)[0] == [*CHANGES]
    others = ["train.log", "search/seed-2/environment.json", "search/seed-2/last.safetensors"]
    assert in_order(["search/seed-0/pi.npz", *others]) == ["search/seed-0/pi.npz"]


@pytest.fixture
def inputs(original: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The hashes of the made-up run's text, and no commit that other work changes meanwhile."""
    monkeypatch.setenv("PARNAS_CACHE", str(original / "cache"))
    monkeypatch.setattr("training.run_dir.commit", lambda: "abc")
    data = load_experiment(original / "tiny.yaml").data
    text = prepare(data, Path.cwd(), progress=print, is_run=lambda folder: False)
    return {"corpus": text.corpus.digest, "tokenizer": text.tokenizer.digest}


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


def test_what_differs_here_is_said_beforehand(
    original: Path, tmp_path: Path, inputs: dict[str, str]
) -> None:
    facts: dict[str, Any] = {"torch": "1.0", "commit": "abc-changed"}
    (tmp_path / "train.txt").write_text((original / "train.txt").read_text()[1:])
    texts = f"data.files.train={tmp_path / 'train.txt'}"
    lines = expected_of(original, tmp_path, inputs, facts, texts)
    assert lines[0] == "commit was abc-changed, is abc"
    assert lines[1].startswith("torch was 1.0, is 2.")
    assert lines[2].startswith(f"corpus was {inputs['corpus']}, is ")
    assert expected_of(original, tmp_path / "same", inputs, {}) == []


def test_a_replay_needs_force_where_something_differs_and_check_runs_nothing(
    original: Path, tmp_path: Path, inputs: dict[str, str], capsys: Capture
) -> None:
    arguments = [original / "run.zip", "--run", tmp_path / "new"]
    capsys.readouterr()
    assert code_of(replay, *arguments, "--check") == 0
    out = capsys.readouterr().out
    assert f"differs: torch was {FACTS['torch']}, is " in out
    assert "python search.py x.yaml --seeds 0,1\n" in out
    assert code_of(replay, *arguments) == 2
    assert "--force runs it anyway" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_a_replay_takes_an_empty_folder_and_goes_on_in_its_own_alone(
    original: Path, made: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "remake", lambda *arguments: None)
    monkeypatch.setattr(replay, "expectations", lambda *arguments: [])
    arguments = [original / "run.zip", "--run", tmp_path / "new"]
    assert code_of(replay, *arguments) == code_of(replay, *arguments) == 1
    saved = tmp_path / "new" / FILES / "commands.jsonl"
    assert saved.read_bytes() == (original / "run/commands.jsonl").read_bytes()
    (made / "comparison.csv").write_text("other")
    write_archive(made, tmp_path / "other.zip")
    arguments[0] = tmp_path / "other.zip"
    assert "a replay of another archive" in refused(replay, capsys, *arguments)
    run = shutil.copytree(original / "run", tmp_path / "mine")
    assert "is not empty" in refused(replay, capsys, original / "run.zip", "--run", run)
