"""Runs packed: the commands that made them, and what a run made again has otherwise."""

import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.experiment import dump_experiment, load_experiment
from tests.conftest import write_experiment
from tests.runs import Capture, code_of, refused, write_json
from tools import pack
from tools.pack import difference, in_order, write_archive

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
    commands = (
        "python search.py x.yaml --seeds 0,1",
        "python derive.py r",
        "python retrain.py r --architecture my.json",
        "python compare.py r",
    )
    rows = [{"command": command, "experiment": content} for command in commands]
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
    (run / TRAINED).parent.mkdir(parents=True)
    (run / TRAINED).write_text('{"nats": 1.0}')
    rows = [
        {"name": name, "nats_per_token": 1.5, "latency_ms": 3.0, "matched": equal}
        for name, equal in ((CHOSEN, "FLOPs latency"), (RIVAL, ""))
    ]
    results = {name: [{"seed": 0, "elapsed_s": 2.0}] for name in (CHOSEN, RIVAL)}
    remarks = ["not trained under equal conditions: program c0ffee (x), 0c0ffee (the others)"]
    content = {"verdict": "none", "remarks": remarks, "rows": rows, "results": results}
    content["latency_interval_ms"] = {CHOSEN: [3.0, 3.5]}
    write_json(run / "comparison.json", content)
    table = f"name,nats_per_token,latency_ms,matched\n{CHOSEN},1.5,3.0,latency\n{RIVAL},1.5,,\n"
    (run / "comparison.csv").write_text(table)
    (run / "report.html").write_text("drawn")
    (run / "lock").write_text("")
    (run / "search/seed-0/tensorboard").mkdir()
    (run / "search/seed-0/tensorboard/events").write_text("x")
    write_commands(run, experiment_file)
    return run


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packed")
    made_up_run(folder / "run", write_experiment(folder))
    write_archive(folder / "run", folder / "run.zip")
    return folder


@pytest.fixture
def made(original: Path, tmp_path: Path) -> Path:
    return shutil.copytree(original / "run", tmp_path / "run")


@pytest.fixture
def archive(original: Path, tmp_path: Path) -> Path:
    return shutil.copy(original / "run.zip", tmp_path / "run.zip")


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
    # What a kill left half written, and what a link shows of elsewhere.
    shutil.copytree(made / "search/seed-1", made / "search/.seed-1.tmp")
    (tmp_path / "mine.json").write_text("{}")
    (made / "mine.json").symlink_to(tmp_path / "mine.json")
    write_archive(made, tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == archive.read_bytes()
    names = set(zipfile.ZipFile(archive).namelist())
    assert {"manifest.json", "run/search/seed-0/pi.npz"} < names
    assert not {".safetensors", ".html", ""} & {Path(name).suffix for name in names}
    assert not any("tensorboard" in name or name.endswith("lock") for name in names)


def edit(name: str, old: str, new: str) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        text = (run / name).read_text()
        assert old in text
        (run / name).write_text(text.replace(old, new, 1))

    return change


TRAINED = "trainings/full/ad/seed-1001/retrain/layout-ad/seed-1001/result.json"
METRICS, RESULT = "search/seed-0/metrics.jsonl", f"retrain/{CHOSEN}/seed-0/result.json"
PI, LAYOUT, TABLE = "search/seed-1/pi.npz", "architecture.json", "comparison.csv"
WEIGHTS = f"retrain/{CHOSEN}/seed-0/model/model.safetensors"
# What may come out otherwise, in the order of a run, and how it is said.
CHANGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    METRICS: (edit(METRICS, '"lr": 0.1', '"lr": 0.1, "new": 1'), "line 1, new was absent, is 1"),
    PI: (edit(PI, "pi", "pj"), "other bytes"),
    LAYOUT: (edit(LAYOUT, '"dense"', '"attention"'), "kind was dense, is attention"),
    WEIGHTS: (edit(WEIGHTS, "weights", "others"), "other bytes"),
    RESULT: (edit(RESULT, '"seed": 0', '"new": 1'), "seed was 0, is absent"),
    TABLE: (edit(TABLE, "interleaved,1.5", "interleaved,1.6"),
            "line 3, nats_per_token was 1.5, is 1.6"),
}  # fmt: skip


def damage(path: Path) -> None:
    """Other bytes in the midst of what is compressed, from which zlib has an error of its own."""
    content = bytearray(path.read_bytes())
    begin = content.index(b"manifest.json") + len("manifest.json") + 5
    content[begin : begin + 20] = bytes(255 - byte for byte in content[begin : begin + 20])
    path.write_bytes(content)


def change(path: Path) -> None:
    """Another figure in a whole archive."""
    with zipfile.ZipFile(path) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    contents["run/comparison.json"] = contents["run/comparison.json"].replace(b"1.5", b"1.4")
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in contents.items():
            archive.writestr(name, content)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda path: path.write_text("no zip"), "File is not a zip file"),
        (lambda path: zipfile.ZipFile(path, "w").writestr("a", "b"), "no item named 'manifest"),
        (lambda path: zipfile.ZipFile(path, "w").writestr("manifest.json", "[1]"), "'list'"),
        (damage, "Error -3"),
        (change, "comparison.json has not the hash"),
    ],
)
def test_what_is_no_archive_is_refused_in_one_line(
    made: Path, archive: Path, capsys: Capture, spoil: Callable[[Path], Any], words: str
) -> None:
    spoil(archive)
    line = refused(pack, capsys, made, "--check", archive)
    assert line.startswith(f"{archive}: not a complete archive of tools.pack (")
    assert words in line
    line = refused(pack, capsys, made, "--check", archive.with_name("absent"))
    assert "No such file" in line
    assert "not a complete" not in line


def test_a_torn_file_of_the_run_is_named_as_the_runs(
    made: Path, archive: Path, capsys: Capture
) -> None:
    (made / METRICS).write_text('{"step": 5, "lr"')
    assert refused(pack, capsys, made, "--check", archive).startswith(f"{made / METRICS}: cannot")


@pytest.fixture
def remade(made: Path) -> Path:
    """A run that came out equal, but for its times."""
    for path in made.glob("*.json*"):
        path.write_text(path.read_text().replace('"latency_ms": 3.0', '"latency_ms": 4.0'))
    for path in made.rglob("*.json*"):
        text = path.read_text().replace('"elapsed_s": ', '"elapsed_s": 9')
        path.write_text(text.replace("3.5", "4.5"))
    rows = (made / "comparison.csv").read_text().replace("3.0,latency", "4.0,")
    (made / "comparison.csv").write_text(rows)
    return made


def checked(run: Path, archive: Path, capsys: Capture) -> tuple[int, list[str]]:
    """The exit code of a check, and its lines but the last."""
    capsys.readouterr()
    code = code_of(pack, run, "--check", archive)
    return code, capsys.readouterr().out.splitlines()[:-1]


def test_times_are_no_difference_and_nothing_is_written(
    remade: Path, archive: Path, capsys: Capture
) -> None:
    before = sorted(remade.rglob("*"))
    assert checked(remade, archive, capsys) == (0, [])
    assert sorted(remade.rglob("*")) == before


@pytest.mark.parametrize("name", CHANGES)
def test_a_result_that_differs_is_named_with_its_first_difference(
    remade: Path, archive: Path, capsys: Capture, name: str
) -> None:
    change, words = CHANGES[name]
    change(remade)
    assert checked(remade, archive, capsys) == (1, [f"{name}: {words}"])


def test_what_is_missing_is_named_with_the_commands(
    remade: Path, archive: Path, capsys: Capture
) -> None:
    (remade / TRAINED).unlink()
    (remade / RESULT).unlink()
    (remade / LAYOUT).unlink()  # which not every command derives again
    code, lines = checked(remade, archive, capsys)
    assert code == 1
    assert lines[1:3] == ["python search.py x.yaml --seeds 0,1", "python derive.py r"]
    assert lines[5:] == [f"{name}: is missing here" for name in (TRAINED, RESULT)]
    shutil.rmtree(remade)
    code, lines = checked(remade, archive, capsys)
    assert code == 1
    assert len(lines[5:]) > 10
    assert all(line.endswith(": is missing here") for line in lines[5:])


def test_what_a_terminal_would_obey_is_shown(remade: Path, archive: Path, capsys: Capture) -> None:
    edit(LAYOUT, '"dense"', '"\\u001b[2J"')(remade)
    code, (line,) = checked(remade, archive, capsys)
    assert code == 1
    assert line.startswith(f"{LAYOUT}: kind was dense, is ")
    assert line.isprintable()


def test_the_first_file_is_the_one_that_a_run_writes_first(
    remade: Path, archive: Path, capsys: Capture
) -> None:
    for change, _ in reversed(CHANGES.values()):
        change(remade)
    names = [line.partition(":")[0] for line in checked(remade, archive, capsys)[1]]
    assert names == [*CHANGES]
    others = ["train.log", "search/seed-2/environment.json", "search/seed-2/last.safetensors"]
    assert in_order(["search/seed-0/pi.npz", *others]) == ["search/seed-0/pi.npz"]


def test_a_number_that_is_none_is_equal_to_itself(tmp_path: Path) -> None:
    was = b'{"loss": NaN, "elapsed_s": 1}\n'
    (tmp_path / "x.jsonl").write_bytes(was.replace(b"1", b"2"))
    assert difference("x.jsonl", was, tmp_path / "x.jsonl") == ""


def test_another_program_machine_text_and_key_are_said_first_and_are_no_result(
    remade: Path, archive: Path, capsys: Capture
) -> None:
    for path in remade.rglob("environment.json"):
        write_json(path, FACTS | {"torch": "1.0", "commit": "abc-changed"})
    for path in remade.rglob("experiment.yaml"):
        edit(path.name, "run:", "run: # another\n")(path.parent)
        edit(path.name, "threads: 1", "threads: 3")(path.parent)
    known = ["commit was c0ffee, is abc-changed", "torch was 2.0, is 1.0"]
    code, lines = checked(remade, archive, capsys)
    assert (code, sorted(lines)) == (0, sorted([*known, "run.threads was 1, is 3"]))
    write_json(remade / "search/seed-0/identity.json", {"corpus": "3" * 64, "tokenizer": "2" * 64})
    corpus = f"corpus was {'1' * 64}, is {'3' * 64}"
    code, lines = checked(remade, archive, capsys)
    assert (code, lines[-1]) == (1, f"search/seed-0/identity.json: {corpus}")
    assert corpus in lines[:-1]
